"""A socket that speaks TLS, for several threads: one reads while others write.

Python lets them into OpenSSL at once, which is not made for that. Neither call waits here, and so each has a
mutex to itself for no longer than the bytes that are there take.
https://docs.openssl.org/master/man7/openssl-threads/
"""

from __future__ import annotations

import socket
import ssl
import threading


class TlsSocket:
    """What is needed of a `socket.socket`. It does not wait, once it is told not to."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._mutex = threading.Lock()

    def send(self, data: bytes) -> int:
        """As of a socket. What was refused by BlockingIOError has to be at the beginning of the next call."""
        with self._mutex:
            try:
                return self._tls.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                raise BlockingIOError from error

    def recv(self, size: int) -> bytes:
        """As of a socket. A record has 16 KB at most: with a *size* above that nothing is left unseen."""
        with self._mutex:
            try:
                return self._tls.recv(size)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                raise BlockingIOError from error

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, blocks: bool) -> None:
        self._tls.setblocking(blocks)

    def shutdown(self, how: int) -> None:
        # After its own a thread that reads would take what comes for plain text.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._tls.close()
