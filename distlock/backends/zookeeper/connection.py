"""kazoo's connection, but callers write to the socket themselves, and reads are large.

In kazoo one thread does all I/O: a request wakes two threads, and each message costs a dozen system calls.
Here a caller sends its requests in one packet, and one read of kazoo's thread takes all replies that came.
kazoo's thread still connects, pings, and sends what a caller could not.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped, KazooException, SessionExpiredError
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import SASL, Close, Connect, int_int_struct, int_struct
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError

from distlock import clock
from distlock.backends.zookeeper.failures import UNREADABLE

#: The most bytes that one read takes.
_PIECE = 65536
#: Seconds to wait for another reply before returning to kazoo's loop, which sends pings.
_MOMENT = 0.05
#: The largest number of a request. The next request has the number 1.
_MOST_REQUESTS = 2**31 - 1
#: The most bytes of an answer: the names of a queue of some hundred thousand.
_LONGEST_ANSWER = 1 << 24
#: A login by SASL has fewer steps than this.
_STEPS = 8

#: What a non-blocking socket raises, plain or with TLS, instead of blocking.
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """A non-blocking TLS socket: one thread may read while others write.

    OpenSSL allows only one thread at a time in a connection, and Python does not see to that. No call
    blocks, so the mutex is never held for long. https://docs.openssl.org/master/man7/openssl-threads/
    """

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._mutex = threading.Lock()

    def send(self, data: bytes) -> int:
        """Send *data* as a socket does. The next call has to begin with the bytes that were not sent."""
        with self._mutex:
            return self._tls.send(data)

    def recv(self, size: int) -> bytes:
        """Receive as a socket does.

        A *size* above 16 KB, the largest record, leaves no bytes in OpenSSL: `select` would not see them.
        """
        with self._mutex:
            return self._tls.recv(size)

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, blocks: bool) -> None:
        self._tls.setblocking(blocks)

    def shutdown(self, how: int) -> None:
        # The method of `SSLSocket` forgets TLS: a reading thread would take what follows for plain text.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._tls.close()


class ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection of one session, to which callers may write themselves."""

    #: The session timeout that the server granted, seconds.
    session_timeout = 0.0

    def __init__(self, io_timeout: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._io_timeout = io_timeout
        #: Since when the server has not answered, while replies are pending.
        self._silent_since = 0.0
        self._received = bytearray()
        #: Guards the fields below, and kazoo's lists of requests.
        self._mutex = threading.Lock()
        #: Whether callers may write to the socket.
        self._open = False
        #: The number of the last request.
        self._xid = 0
        #: Whether the session has begun, and no answer to a login can come any more.
        self._greeted = False
        #: Bytes that the socket has not taken yet.
        self._unsent = b""

    # -- callers' threads ------------------------------------------------------------------------

    def send(self, requests: Sequence[tuple[Any, Any]]) -> bool:
        """Send *requests*, each with its reply, in one packet.

        Return False, with nothing sent, if kazoo's thread has to send them.
        """
        if not self._open:
            return False
        bodies = [_body(request) for request, _ in requests]
        with self._mutex:
            client = self.client
            if self._is_shut() or client._queue:
                return False
            now = clock.now()
            if not client._pending:
                self._silent_since = now
            elif now > self._silent_since + self._io_timeout:
                # The server may have died: kazoo's thread checks that before it sends.
                return False
            try:
                packet = self._number(requests, bodies)
                sent = self._socket.send(packet)
                if sent < len(packet):
                    self._hand_off(packet[sent:])
            except _WOULD_BLOCK:
                self._hand_off(packet)
            except BaseException as error:
                # The connection broke, or an interrupt came and it is unknown what was sent. kazoo's thread
                # sees the end, and fails the pending requests.
                self._open = False
                self.cut()
                if not isinstance(error, OSError):
                    raise
        return True

    def cut(self) -> None:
        """Break the connection."""
        if (one := self._socket) is not None:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        """Have callers write nothing before the next connection."""
        with self._mutex:
            self._open, self._unsent = False, b""

    def _is_shut(self) -> bool:
        return not self._open

    def _hand_off(self, rest: bytes) -> None:
        """Leave *rest*, which the socket does not take, to kazoo's thread."""
        self._unsent, self._open = rest, False
        self._write_sock.send(b"\0")

    def _number(self, requests: Sequence[tuple[Any, Any]], bodies: Sequence[bytes]) -> bytes:
        """Number the requests, register them as pending, and return the packet."""
        pieces = []
        for (request, answer), body in zip(requests, bodies, strict=True):
            self._xid = self._xid % _MOST_REQUESTS + 1
            self.client._pending.append((request, answer, self._xid))
            pieces += [int_int_struct.pack(len(body) + 4, self._xid), body]
        return b"".join(pieces)

    # -- kazoo's thread --------------------------------------------------------------------------

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        now = clock.now()
        if not self.client._pending:
            self._silent_since = now
        elif now > self._silent_since + self._io_timeout and not self._has_news():
            # kazoo looks for a silent server only after a pause in sending. A busy client would send to it
            # for ever.
            raise ConnectionDropped(f"it has said nothing for {now - self._silent_since:.1f} s")
        with self._mutex:
            self._open = False
            self._read_sock.recv(_PIECE)
            queue = self.client._queue
            requests = list(queue)
            bodies = [_body(request) for request, _ in requests]
            packet = self._number(requests, bodies)
            for _ in requests:
                queue.popleft()
        self._write(packet, connect_timeout)
        self._open = True

    def _write(self, msg: bytes, timeout: float) -> None:
        with self._mutex:
            # Callers may not write meanwhile. `_send_request` allows it again.
            self._open = False
            msg, self._unsent = self._unsent + msg, b""
        super()._write(msg, timeout)

    def _has_news(self) -> bool:
        """Return whether an answer has come that this thread has not read yet."""
        return bool(self._received or self.handler.select([self._socket], [], [], 0)[0])

    def _connect(self, *args: Any) -> Any:
        self._received.clear()
        self._greeted = False
        timeouts = super()._connect(*args)
        self._open = self._greeted = True
        return timeouts

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= _LONGEST_ANSWER:
            raise ConnectionDropped(f"an answer of {length} bytes")
        received = self._received
        while len(received) < length:
            try:
                piece = self._socket.recv(_PIECE)
            except _WOULD_BLOCK:
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("it does not answer") from None
                continue
            except OSError as error:
                raise ConnectionDropped(f"socket connection error: {error.strerror}") from error
            if not piece:
                raise ConnectionDropped("socket connection broken")
            received += piece
        taken = bytes(received[:length])
        del received[:length]
        return taken

    def _read_socket(self, read_timeout: float) -> Any:
        # Wait for another reply here: a round of kazoo's loop takes longer than the rest of a reply's work.
        until = clock.now() + _MOMENT
        while True:
            try:
                answer = super()._read_socket(read_timeout)
            except UNREADABLE as error:
                raise SessionExpiredError("an answer that can't be read") from error
            if answer == Close.type:
                return answer
            if not self._received:
                self._silent_since = now = clock.now()
                if now >= until or self._ready(until - now) != [self._socket]:
                    return answer

    def _ready(self, seconds: float) -> list[Any]:
        """Return which of the server's socket and the wake-up pipe become readable within *seconds*."""
        found: list[Any] = self.handler.select([self._socket, self._read_sock], [], [], seconds)[0]
        return found

    def _read_header(self, timeout: float) -> Any:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid == AUTH_XID and self._greeted:
            # kazoo would give the caller True.
            raise SessionExpiredError("an answer to what was not asked")
        return header, buffer, offset

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or header.xid != pending[0][2]:
            # This reply answers no request of ours, so another process uses our session. kazoo would give the
            # caller a RuntimeError, and stop.
            raise SessionExpiredError("an answer to what was not asked")
        reply = pending[0][1]
        response = super()._read_response(header, buffer, offset)
        if getattr(reply, "unreadable", False):
            raise SessionExpiredError("an answer that can't be read")
        return response

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except (KazooException, ForceRetryError, InterruptedError):
            raise
        except Exception as error:
            # Otherwise kazoo's thread would end, and callers would wait until the session is given up.
            self.client._session_callback(KeeperState.EXPIRED_SESSION)
            raise ForceRetryError(f"Beginning a new session: {error!r}") from error

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, self.handler.patience))
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                # kazoo takes a server that dies now for one that refuses the login, and gives the session up.
                raise error.__cause__ from None
            raise

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if isinstance(request, SASL) and (xid or 0) > _STEPS:
            # A server without SASL sends an empty answer to each step, and kazoo would never stop.
            raise AuthFailedError
        super()._submit(request, timeout, xid)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        # A server that is just starting may never answer this attempt, but answers the next one at once.
        answer = super()._invoke(min(timeout, self.handler.patience), request, xid)
        if isinstance(request, Connect):
            self.session_timeout = answer[0].time_out / 1000
        return answer


def _body(request: Any) -> bytes:
    body: bytes = int_struct.pack(request.type) + request.serialize()
    return body
