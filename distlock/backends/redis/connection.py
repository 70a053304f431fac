"""One connection to the server. Every wait ends at a deadline."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import hiredis

from distlock import clock
from distlock.backends.redis.address import RedisAddress, hide
from distlock.backends.redis.offloading import Credentials, Resolver
from distlock.backends.redis.scripts import command

_MORE = object()
_CHUNK = 65536
#: Socket timeout as a share of the remaining time; below `_SHORT` seconds, all of it.
_SHARE, _SHORT = 0.9, 0.5
#: No reply to our commands has more bytes.
_LONGEST_REPLY = 1 << 20
#: Stands for the socket's timeout while the socket is non-blocking.
_NON_BLOCKING = -1.0


class ReplyError(Exception):
    """An error that the server answered."""


class PendingReply(Protocol):
    """A reply that was not read after its call was sent. It comes before the replies to later calls."""

    #: Whether the reply will not come.
    lost: bool

    def answered(self, reply: object) -> None:
        """Take *reply*. Raises `OSError` if it can't be the reply to this call."""


class RedisConnection:
    """A connection, which `connect` opens.

    Methods raise an OSError (TimeoutError after the deadline), a ValueError, a RuntimeError (no thread) or a
    `ReplyError`. After an error, only `disconnect` may be called. While one thread uses the connection, other
    threads may only call `disconnect` and `shut_down`.
    """

    #: Set here because `__del__` runs even if an interrupt ended `__init__`.
    _socket: socket.socket | None = None

    def __init__(
        self, address: RedisAddress, resolver: Resolver, credentials: Credentials | None, client_name: str
    ) -> None:
        self._address = address
        self._resolver = resolver
        self._credentials = credentials
        self._client_name = client_name
        #: The pending replies, which come before the reply to the next call.
        self.pending: deque[PendingReply] = deque()
        #: The socket's timeout, in seconds; 0: the next call has to set it. It is changed rarely, because
        #: that is a system call.
        self._timeout = 0.0
        #: The number of bytes that `drain` has read since the last complete reply.
        self._incomplete = 0
        self._reader = hiredis.Reader(protocolError=OSError, replyError=ReplyError, notEnoughData=_MORE)

    def connect(self, deadline: float) -> None:
        """Connect, shake hands for TLS, and log in, all before *deadline*."""
        # Ask the provider before connecting, because a server does not wait long for a login.
        login = self._credentials.login(deadline) if self._credentials else self._address.login
        self._socket = self._reach(deadline)
        if self._address.tls is not None:
            self._socket.settimeout(_left(deadline))
            # The socket's timeout bounds the handshake as a whole.
            context = self._address.tls.context
            self._socket = context.wrap_socket(self._socket, server_hostname=self._address.host)
        self._timeout = 0.0
        greeting = [command("AUTH", *login)] if login else []
        if self._client_name:
            greeting.append(command("CLIENT", "SETNAME", self._client_name))
        if self._address.db:
            greeting.append(command("SELECT", self._address.db))
        if greeting:
            for answer in self.ask(greeting, deadline):
                if isinstance(answer, ReplyError):
                    # A server quotes what it does not understand, even a password.
                    raise ReplyError(hide(str(answer), login[-1:]))

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Send *commands* together and return their replies, which come after the pending ones."""
        self.send(commands[0] if len(commands) == 1 else b"".join(commands), deadline)
        replies: list[Any] = []
        while self.pending or len(replies) < len(commands):
            reply = self.read(deadline)
            if self.pending:
                self.pending[0].answered(reply)
                self.pending.popleft()
            else:
                replies.append(reply)
        return replies

    def collect(self, deadline: float) -> None:
        """Read the pending replies that begin to arrive before *deadline*."""
        while self.pending and self.has_data(deadline):
            self.pending[0].answered(self.read(deadline))
            self.pending.popleft()

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of *data*."""
        assert self._socket is not None
        view: bytes | memoryview = data
        while view:
            if not 0.0 < self._timeout <= deadline - clock.now():
                self._set_timeout(_left(deadline))
            try:
                sent = self._socket.send(view)
            except TimeoutError:
                # The timeout may be left from an earlier call, which had less time.
                self._timeout = 0.0
            else:
                if sent == len(view):
                    return
                view = memoryview(view)[sent:]

    def read(self, deadline: float) -> Any:
        """Return the next reply. An error that the server answers is returned, too, as a `ReplyError`."""
        received = 0
        while (reply := self._reader.gets()) is _MORE:
            received += self._receive(deadline)
            if received > _LONGEST_REPLY:
                raise OSError("it answered more than was asked")
        return reply

    def fileno(self) -> int:
        """Return the descriptor, for event loops."""
        assert self._socket is not None
        return self._socket.fileno()

    def send_some(self, data: bytes) -> bytes:
        """Send as much of *data* as is possible without waiting, and return the rest."""
        sock = self._non_blocking()
        try:
            return data[sock.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return data

    def drain(self) -> None:
        """Read the pending replies that have come, without waiting."""
        sock = self._non_blocking()
        more = True
        while more:
            try:
                data = sock.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise ConnectionError("it closed the connection")
            self._reader.feed(data)
            self._incomplete += len(data)
            while self.pending and (reply := self._reader.gets()) is not _MORE:
                self._incomplete = 0
                self.pending[0].answered(reply)
                self.pending.popleft()
            if self._incomplete > _LONGEST_REPLY or (not self.pending and self._reader.has_data()):
                raise OSError("it answered more than was asked")
            # TLS may have decrypted more than recv() returned. Then the socket does not become readable.
            more = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def has_data(self, deadline: float) -> bool:
        """Wait until *deadline* for data to `read`. Return whether there is any."""
        if self._reader.has_data():
            return True
        try:
            self._receive(deadline)
        except TimeoutError:
            return False
        return True

    def __del__(self) -> None:
        # An interrupt may have dropped the connection. In a forked child, the parent still uses the socket,
        # so it is closed without a shutdown.
        for reply in getattr(self, "pending", ()):
            reply.lost = True
        if self._socket is not None:
            self._socket.close()

    def disconnect(self) -> None:
        """Close the connection. Any thread may call this. A thread that reads wakes up."""
        self.shut_down()
        if self._socket is not None:
            self._socket.close()

    def shut_down(self) -> None:
        """Shut the connection down, but keep its descriptor, which an event loop may still watch."""
        for reply in tuple(self.pending):
            reply.lost = True
        if self._socket is not None:
            try:
                # The method of the plain socket, because the method of a TLS socket would send something.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                pass

    def _receive(self, deadline: float) -> int:
        assert self._socket is not None
        while True:
            left = deadline - clock.now()
            if not 0.0 < self._timeout <= left:
                # Even after the deadline, data that has arrived counts.
                self._set_timeout(max(0.0, left))
            try:
                data = self._socket.recv(_CHUNK)
                break
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                self._timeout = 0.0
                if left <= 0 or clock.now() >= deadline:
                    raise TimeoutError("it did not answer in time") from None
        if not data:
            raise ConnectionError("it closed the connection")
        self._reader.feed(data)
        return len(data)

    def _non_blocking(self) -> socket.socket:
        """Return the socket in non-blocking mode."""
        assert self._socket is not None
        if self._timeout != _NON_BLOCKING:
            self._socket.settimeout(0.0)
            self._timeout = _NON_BLOCKING
        return self._socket

    def _set_timeout(self, left: float) -> None:
        """Set the socket's timeout to *left* seconds, or a little less.

        The next calls have about as much time, and need not change the timeout then.
        """
        assert self._socket is not None
        self._timeout = left * _SHARE if left > _SHORT else left
        self._socket.settimeout(self._timeout)

    def _reach(self, deadline: float) -> socket.socket:
        address = self._address
        if address.path is not None:
            return _open(socket.AF_UNIX, address.path, deadline)
        failure = OSError("its name has no address")
        for family, where in self._resolver.resolve(deadline):
            try:
                sock = _open(family, where, deadline)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in address.keepalives.items():
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
            except OSError as error:
                failure = error
            else:
                return sock
        raise failure


def _open(family: int, where: Any, deadline: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(deadline))
        sock.connect(where)
    except BaseException:
        sock.close()
        raise
    return sock


def _left(deadline: float) -> float:
    left = deadline - clock.now()
    if left <= 0:
        raise TimeoutError("no time was left")
    return left
