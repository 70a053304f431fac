"""A socket that speaks TLS, for several threads: one reads while others write.

Python lets them into OpenSSL at once, which is not made for that. Neither call waits here, and so each has a
mutex to itself for no longer than the bytes that are there take.
https://docs.openssl.org/master/man7/openssl-threads/
"""

from __future__ import annotations

import socket
import ssl
import threading

#: What a socket raises in place of waiting, the plain one and this one. kazoo, too, knows them apart.
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """What is needed of a `socket.socket`. It does not wait, once it is told not to: see `NOT_NOW`."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._mutex = threading.Lock()

    def send(self, data: bytes) -> int:
        """As of a socket. What it did not take has to be at the beginning of the next call."""
        with self._mutex:
            return self._tls.send(data)

    def recv(self, size: int) -> bytes:
        """As of a socket. A record has 16 KB at most: with a *size* above that nothing is left unseen."""
        with self._mutex:
            return self._tls.recv(size)

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, blocks: bool) -> None:
        self._tls.setblocking(blocks)

    def shutdown(self, how: int) -> None:
        # After its own a thread that reads would take what comes for plain text.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._tls.close()
