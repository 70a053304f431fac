"""kazoo's connection, with fewer steps: callers write to the socket themselves, and reads are large.

kazoo has its thread do all of it: a request wakes two threads, and each message costs a dozen calls of the
system. Here a caller sends its requests in one piece, and kazoo's thread reads in one piece what has come.
It goes on connecting, pinging, and sending what a caller could not.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped, KazooException, SessionExpiredError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, Close, Connect, int_int_struct, int_struct
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError

from distlock import clock
from distlock.backends.zookeeper.tls_socket import NOT_NOW

#: Bytes that are read at most at once.
_PIECE = 65536
#: Seconds for which what comes next is awaited where the last was read, before kazoo's loop sees to pings.
_MOMENT = 0.05
#: The numbers of requests go around.
_MOST_REQUESTS = 2**31 - 1
#: More steps than a login by SASL has.
_STEPS = 8


class Connection(ConnectionHandler):  # type: ignore[misc]
    #: What the server granted, seconds.
    session_timeout = 0.0

    def __init__(self, io_timeout: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._io_timeout = io_timeout
        #: Since when it has not answered, if there is something to be answered.
        self._silent_since = 0.0
        self._received = bytearray()
        #: For what follows, and kazoo's lists of requests.
        self._mutex = threading.Lock()
        #: Callers may send by themselves.
        self._open = False
        #: The number of the last request.
        self._xid = 0
        #: What the socket did not take.
        self._unsent = b""

    # -- callers' threads ------------------------------------------------------------------------

    def send(self, requests: Sequence[tuple[Any, Any]]) -> bool:
        """Send requests, each with what is to have its answer, in one piece. False: kazoo's thread has to."""
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
                # kazoo's thread looks whether that is so.
                return False
            try:
                packet = self._number(requests, bodies)
                sent = self._socket.send(packet)
                if sent < len(packet):
                    self._hand_off(packet[sent:])
            except NOT_NOW:
                self._hand_off(packet)
            except BaseException as error:
                # It has broken, or we were interrupted and nobody knows what was sent: kazoo's thread tells
                # those who wait for an answer.
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
        """Nothing is sent any more, before the next connection."""
        with self._mutex:
            self._open, self._unsent = False, b""

    def _is_shut(self) -> bool:
        return not self._open

    def _hand_off(self, rest: bytes) -> None:
        """Have kazoo's thread send what the socket does not take."""
        self._unsent, self._open = rest, False
        self._write_sock.send(b"\0")

    def _number(self, requests: Sequence[tuple[Any, Any]], bodies: Sequence[bytes]) -> bytes:
        """What is to be sent. From now on the answers are awaited."""
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
            # kazoo looks whether the server hangs when there was nothing to send for a third of a session: a
            # client with a lot to ask would go on asking that one for ever, and never hear of the others.
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
            # Nobody may send in the middle of it. `_send_request` lets them again.
            self._open = False
            msg, self._unsent = self._unsent + msg, b""
        super()._write(msg, timeout)

    def _has_news(self) -> bool:
        """It has said something meanwhile, and we are late."""
        return bool(self._received or self.handler.select([self._socket], [], [], 0)[0])

    def _connect(self, *args: Any) -> Any:
        self._received.clear()
        timeouts = super()._connect(*args)
        self._open = True
        return timeouts

    def _read(self, length: int, timeout: float) -> bytes:
        received = self._received
        while len(received) < length:
            try:
                piece = self._socket.recv(_PIECE)
            except NOT_NOW:
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
        # What comes next is awaited right here, for a moment: kazoo's loop takes longer than all the rest.
        until = clock.now() + _MOMENT
        while True:
            answer = super()._read_socket(read_timeout)
            if answer == Close.type:
                return answer
            if not self._received:
                self._silent_since = now = clock.now()
                if now >= until or self._ready(until - now) != [self._socket]:
                    return answer

    def _ready(self, seconds: float) -> list[Any]:
        """What can be read within *seconds*: of the server, or of those who can't send by themselves."""
        found: list[Any] = self.handler.select([self._socket, self._read_sock], [], [], seconds)[0]
        return found

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or header.xid != pending[0][2]:
            # Another process talks on our session. kazoo would tell the caller so, as a RuntimeError.
            raise SessionExpiredError("an answer to what was not asked")
        return super()._read_response(header, buffer, offset)

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except (KazooException, ForceRetryError, InterruptedError):
            raise
        except Exception as error:
            # kazoo's thread would end, and callers would wait until the session is given up.
            self.client._session_callback(KeeperState.EXPIRED_SESSION)
            raise ForceRetryError(f"Beginning a new session: {error!r}") from error

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, self.handler.patience))
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                # kazoo takes a server that dies meanwhile for one that refuses us, and gives the session up.
                raise error.__cause__ from None
            raise

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if isinstance(request, SASL) and (xid or 0) > _STEPS:
            # A server that has no SASL answers each step with nothing, and kazoo would never end.
            raise AuthFailedError
        super()._submit(request, timeout, xid)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        # A server that is just starting may never answer, and the next attempt is answered at once.
        answer = super()._invoke(min(timeout, self.handler.patience), request, xid)
        if isinstance(request, Connect):
            self.session_timeout = answer[0].time_out / 1000
        return answer


def _body(request: Any) -> bytes:
    body: bytes = int_struct.pack(request.type) + request.serialize()
    return body
