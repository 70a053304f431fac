"""One connection to the server. Whatever it waits for, it waits until a deadline and no longer."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Protocol

import hiredis

from distlock import clock
from distlock.backends.redis.address import Address, hide
from distlock.backends.redis.credentials import Credentials
from distlock.backends.redis.resolver import Resolver
from distlock.backends.redis.scripts import command

_MORE = object()
_CHUNK = 65536
#: Of what is left of a call; below so many seconds it is waited for as a whole.
_SHARE, _SHORT = 0.9, 0.5
#: Nothing that we ask is answered by more bytes.
_LONGEST_REPLY = 1 << 20
#: In the place of how long the socket waits: it does not.
_NOT = -1.0


class ReplyError(Exception):
    """What the server answered is an error."""


class Owed(Protocol):
    """Told the answer to a call that nobody waits for."""

    #: There will be none.
    lost: bool

    def answered(self, reply: object) -> None:
        """Raises OSError if it is none."""


class Connection:
    """Connects when told to. Not for two threads at once, but for `disconnect`.

    What goes wrong is an OSError (TimeoutError: the deadline), a ValueError, a RuntimeError (no thread) or a
    `ReplyError`. Then it is good for nothing but `disconnect`.
    """

    #: It is looked at also where an interrupt ended `__init__`.
    _socket: socket.socket | None = None

    def __init__(
        self, address: Address, resolver: Resolver, credentials: Credentials | None, client_name: str
    ) -> None:
        self._address = address
        self._resolver = resolver
        self._credentials = credentials
        self._client_name = client_name
        #: Whose answers are still to come, before those of the next call.
        self.owed: deque[Owed] = deque()
        #: How long the socket waits, seconds. To change that is a system call, in which other threads run.
        self._waits = 0.0
        #: How many bytes of one reply have come to a caller that does not wait.
        self._unread = 0
        self._reader = hiredis.Reader(protocolError=OSError, replyError=ReplyError, notEnoughData=_MORE)

    def connect(self, deadline: float) -> None:
        """Connect, speak TLS, log in: all of it until *deadline*."""
        # Asked first: a server does not wait for long until somebody logs in.
        login = self._credentials.login(deadline) if self._credentials else self._address.login
        self._socket = self._reach(deadline)
        if self._address.tls is not None:
            self._socket.settimeout(_left(deadline))
            # A handshake is bounded as a whole.
            context = self._address.tls.context
            self._socket = context.wrap_socket(self._socket, server_hostname=self._address.host)
        self._waits = 0.0
        greeting = [command("AUTH", *login)] if login else []
        if self._client_name:
            greeting.append(command("CLIENT", "SETNAME", self._client_name))
        if self._address.db:
            greeting.append(command("SELECT", self._address.db))
        if greeting:
            for answer in self.ask(greeting, deadline):
                if isinstance(answer, ReplyError):
                    # A server quotes what it does not understand.
                    raise ReplyError(hide(str(answer), login[-1:]))

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Send *commands* in one go and return their replies."""
        self.send(commands[0] if len(commands) == 1 else b"".join(commands), deadline)
        while self.owed:
            self.collect(deadline)
        if len(commands) == 1:
            return [self.read(deadline)]
        return list(map(self.read, repeat(deadline, len(commands))))

    def post(self, command: bytes, owed: Owed, deadline: float) -> None:
        """Send *command*, and leave its answer to the next `ask` or `collect`."""
        self.owed.append(owed)
        self.send(command, deadline)

    def collect(self, deadline: float) -> None:
        """Read the next answer that is owed."""
        self.owed[0].answered(self.read(deadline))
        self.owed.popleft()

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of *data*."""
        assert self._socket is not None
        view: bytes | memoryview = data
        while view:
            if not 0.0 < self._waits <= deadline - clock.now():
                self._wait_for(_left(deadline))
            try:
                sent = self._socket.send(view)
            except TimeoutError:
                # Perhaps of a call before this one, which had less time.
                self._waits = 0.0
            else:
                if sent == len(view):
                    return
                view = memoryview(view)[sent:]

    def read(self, deadline: float) -> Any:
        """The next reply; one that is an error is returned, too."""
        received = 0
        while (reply := self._reader.gets()) is _MORE:
            received += self._receive(deadline)
            if received > _LONGEST_REPLY:
                raise OSError("it answered more than was asked")
        return reply

    def fileno(self) -> int:
        """For event loops."""
        assert self._socket is not None
        return self._socket.fileno()

    def send_some(self, data: bytes) -> bytes:
        """Send as much of *data* as goes without waiting, and return the rest."""
        made = self._unwaiting()
        try:
            return data[made.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return data

    def collect_some(self) -> None:
        """Read the answers that have come, without waiting."""
        made = self._unwaiting()
        pending = True
        while pending:
            try:
                data = made.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise ConnectionError("it closed the connection")
            self._reader.feed(data)
            self._unread += len(data)
            while self.owed and (reply := self._reader.gets()) is not _MORE:
                self._unread = 0
                self.owed[0].answered(reply)
                self.owed.popleft()
            if self._unread > _LONGEST_REPLY or (not self.owed and self._reader.has_data()):
                raise OSError("it answered more than was asked")
            # TLS may have decrypted more than it gave, which nobody would be told of.
            pending = isinstance(made, ssl.SSLSocket) and made.pending() > 0

    def heard(self, deadline: float) -> bool:
        """Whether there is something to `read`, waiting for it until *deadline*."""
        if self._reader.has_data():
            return True
        try:
            self._receive(deadline)
        except TimeoutError:
            return False
        return True

    def __del__(self) -> None:
        # An interrupt may tear it out of all hands. In a forked child it is still the parent's: no shutdown.
        for owed in getattr(self, "owed", ()):
            owed.lost = True
        if self._socket is not None:
            self._socket.close()

    def disconnect(self) -> None:
        """Any thread may call it: one that reads wakes up."""
        self.shut_down()
        if self._socket is not None:
            self._socket.close()

    def shut_down(self) -> None:
        """As `disconnect`, for one that an event loop looks at: its descriptor stays taken for that."""
        for owed in tuple(self.owed):
            owed.lost = True
        if self._socket is not None:
            try:
                # The plain one's: that of TLS would begin to talk.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                pass

    def _receive(self, deadline: float) -> int:
        assert self._socket is not None
        while True:
            left = deadline - clock.now()
            if not 0.0 < self._waits <= left:
                # What is there already is taken, however late it is.
                self._wait_for(max(0.0, left))
            try:
                data = self._socket.recv(_CHUNK)
                break
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                self._waits = 0.0
                if left <= 0 or clock.now() >= deadline:
                    raise TimeoutError("it did not answer in time") from None
        if not data:
            raise ConnectionError("it closed the connection")
        self._reader.feed(data)
        return len(data)

    def _unwaiting(self) -> socket.socket:
        """The socket, which does not wait now."""
        assert self._socket is not None
        if self._waits != _NOT:
            self._socket.settimeout(0.0)
            self._waits = _NOT
        return self._socket

    def _wait_for(self, left: float) -> None:
        """Have the socket wait for *left* seconds, or a little less.

        The calls to come, which have about as much time, find it right then and need not tell it again.
        """
        assert self._socket is not None
        self._waits = left * _SHARE if left > _SHORT else left
        self._socket.settimeout(self._waits)

    def _reach(self, deadline: float) -> socket.socket:
        address = self._address
        if address.path is not None:
            return _open(socket.AF_UNIX, address.path, deadline)
        failure = OSError("its name has no address")
        for family, where in self._resolver.resolve(deadline):
            try:
                made = _open(family, where, deadline)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            except OSError as error:
                failure = error
            else:
                return made
        raise failure


def _open(family: int, where: Any, deadline: float) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(_left(deadline))
        made.connect(where)
    except BaseException:
        made.close()
        raise
    return made


def _left(deadline: float) -> float:
    left = deadline - clock.now()
    if left <= 0:
        raise TimeoutError("no time was left")
    return left
