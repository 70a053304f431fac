"""Connections for requests: borrowed for one exchange, and given back only when they are clean."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.redis.address import Address
from distlock.backends.redis.connection import Connection, Owed, ReplyError
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.policy import look_at_policy
from distlock.errors import BackendUnavailable, shown_as

#: How often to look whether an interrupt tore a connection away, seconds.
_LOOK = 0.05
#: The answers that may be owed on one connection: they lie in the buffers of both ends.
_MOST_OWED = 64


class Posted(Owed, Protocol):
    """A call that was sent, and whose answer is read later."""

    connection: weakref.ref[Connection] | None
    #: Its answer was read.
    over: bool
    #: The moment from which it is not expected any more.
    until: float


@shown_as(BackendUnavailable)
class Stale(BackendUnavailable):
    """A connection that had been idle turned out to be dead. Most likely the server saw nothing of it."""


class Pool:
    """At most *size* connections, the one used last first. Belongs to one process."""

    def __init__(
        self, address: Address, make: Callable[[], Connection], size: int, sink: Sink | None = None
    ) -> None:
        self._address = address
        self._make = make
        self._size = size
        self._sink = sink
        #: How many connections broke that none has taken the place of yet.
        self._broken = 0
        #: Appending and popping are atomic; only waiting for a connection needs the condition.
        self._idle: list[Connection] = []
        #: Weak, so that a connection which an interrupt tore out of our hands is not counted for ever.
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()
        #: Entered by itself: a signal handler that raises inside of `Condition.__enter__` leaves it locked.
        self._mutex = threading.RLock()
        self._freed = threading.Condition(self._mutex)
        self._waiting = 0
        #: Called when all connections are in use, to have those written off that don't come back.
        self.sweep: Callable[[], Callable[[], None] | None] = lambda: None
        #: Connections that are idle again in a moment: nobody connects instead.
        self._collecting = 0
        self._policy_known = False

    def exchange(
        self, commands: Sequence[bytes], deadline: float, connection: Connection | None = None
    ) -> list[Any]:
        """Send *commands* in one go and return their replies; what the server refused is a `ReplyError`.

        It ends by *deadline*, connecting included. Raises `BackendUnavailable` when the exchange was not
        completed, and `Stale` where a second attempt is worth it. *connection*: one that was claimed for it.
        """
        fresh = False
        if connection is None:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection, fresh = self._borrow(deadline)
        try:
            return self._converse(connection, commands, fresh, deadline)
        # Threads and descriptors run out, names cannot be resolved or encoded, certificates not be read.
        except (OSError, ReplyError, ValueError, RuntimeError) as error:
            failure = error
        raise self._failed(failure, fresh)

    def post(self, command: bytes, posted: Posted, deadline: float) -> bool:
        """Send *command*, and leave its answer to the next exchange on its connection, or to `collect`.

        False: not now, for it would have to wait. Raises `BackendUnavailable` or `Stale`.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return False
        posted.connection = weakref.ref(connection)
        try:
            if len(connection.owed) >= _MOST_OWED:
                self._idle.append(connection)
                self._tell()
                return False
            connection.post(command, posted, deadline)
        except (OSError, ValueError) as error:
            self._discard(connection)
            raise self._failed(error, fresh=False) from None
        except BaseException:
            self._discard(connection)
            raise
        self._idle.append(connection)
        if self._waiting:
            self._tell()
        return True

    def lend(self, posted: Posted | None = None) -> Connection | None:
        """An idle connection, or that of *posted*, until it is given back; None: there is none."""
        if posted is not None:
            return self._take(posted)
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def give_back(self, connection: Connection) -> None:
        """It is clean: all that is still to be read on it is owed."""
        self._idle.append(connection)
        self.tell()

    def broke(self, connection: Connection, failure: OSError) -> None:
        """One that was lent is good for nothing any more, because of *failure*."""
        self._discard(connection)
        self._failed(failure, fresh=False)

    def told(self, failure: OSError) -> BackendUnavailable:
        """What a caller is told of *failure*."""
        return unavailable(self._address, failure)

    def write_off(self, connection: Connection) -> None:
        """Another one may be made for one that is lent and does not come back."""
        connection.shut_down()
        with self._mutex:
            self._all.discard(connection)
            self._freed.notify_all()

    def tell(self) -> None:
        """Those that wait for a connection, or for an answer, look again."""
        if self._waiting:
            self._tell()

    def claim(self, posted: Posted, deadline: float) -> Connection | None:
        """The connection of *posted*, for `exchange`; None: its answer was read, or won't come any more."""
        if (connection := self._take(posted)) is not None:
            return connection
        with self._mutex:
            self._waiting += 1
            try:
                while not (posted.over or posted.lost) and (left := deadline - clock.now()) > 0:
                    if (connection := self._take(posted)) is not None:
                        return connection
                    self._freed.wait(min(left, _LOOK))
            finally:
                self._waiting -= 1
        return None

    def _take(self, posted: Posted) -> Connection | None:
        """The connection of *posted*, if it is idle."""
        connection = None if posted.connection is None else posted.connection()
        try:
            self._idle.remove(connection)  # type: ignore[arg-type]
        except ValueError:
            return None
        return connection

    def collect(self, posted: Posted, deadline: float) -> None:
        """Read the answer of *posted* if it comes until *deadline*, and nobody else uses its connection."""
        with self._mutex:
            if (connection := self._take(posted)) is None:
                return
            self._collecting += 1
        try:
            while connection.owed and connection.heard(deadline):
                connection.collect(deadline)
        except OSError:
            self._discard(connection)
            self._note_broken()
        except BaseException:
            self._discard(connection)
            raise
        else:
            self._idle.append(connection)
        finally:
            with self._mutex:
                self._collecting -= 1
                self._freed.notify_all()

    def clear(self) -> None:
        """Close the idle connections. One that is in use is closed by the next `clear`, or serves on."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _converse(
        self, connection: Connection, commands: Sequence[bytes], fresh: bool, deadline: float
    ) -> list[Any]:
        try:
            if fresh:
                connection.connect(deadline)
                if not self._policy_known:
                    self._policy_known = look_at_policy(self._address, connection, deadline)
            replies = connection.ask(commands, deadline)
        except BaseException:
            # Part of a reply may still be on its way. The next call would take it for its own.
            # https://github.com/redis/redis-py/issues/2624
            self._discard(connection)
            raise
        self._idle.append(connection)
        if self._waiting:
            self._tell()
        if fresh:
            self._note_fresh()
        return replies

    def _tell(self) -> None:
        with self._mutex:
            self._freed.notify_all()

    def _failed(self, failure: Exception, fresh: bool) -> BackendUnavailable:
        """What to raise because of *failure*."""
        told = unavailable(self._address, failure)
        if fresh:
            return told
        # The others have been idle for longer and are most likely dead as well.
        self.clear()
        self._note_broken()
        if isinstance(failure, OSError) and not isinstance(failure, TimeoutError):
            stale = Stale(str(told))
            stale.__cause__ = told.__cause__
            stale.__suppress_context__ = True
            return stale
        return told

    def _borrow(self, deadline: float) -> tuple[Connection, bool]:
        """A connection, and whether it still has to connect."""
        if len(self._all) >= self._size and (sweep := self.sweep()) is not None:
            sweep()
        with self._mutex:
            # Announced before the look, so that a call that gives one back after it sees us.
            self._waiting += 1
            try:
                while True:
                    # Others take idle ones without the mutex.
                    with suppress(IndexError):
                        return self._idle.pop(), False
                    if len(self._all) < self._size and not self._collecting:
                        connection = self._make()
                        self._all.add(connection)
                        return connection, True
                    if not self._freed.wait(max(0.0, deadline - clock.now())):
                        raise BackendUnavailable(
                            f"All {self._size} connections to the Redis server at {self._address.shown} were "
                            "busy for too long. Raise max_connections."
                        )
            finally:
                self._waiting -= 1

    def _note_broken(self) -> None:
        with self._mutex:
            self._broken += 1

    def _note_fresh(self) -> None:
        """A connection has served for the first time."""
        with self._mutex:
            replaces = self._broken > 0
            self._broken -= replaces
        if replaces and self._sink is not None:
            self._sink.reconnected()

    def _discard(self, connection: Connection) -> None:
        connection.disconnect()
        with self._mutex:
            self._all.discard(connection)
            self._freed.notify_all()
