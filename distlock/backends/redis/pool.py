"""A pool of connections. A call borrows one, and gives it back only if no stray bytes can arrive on it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.connection import PendingReply, RedisConnection, ReplyError
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.health import warn_of_eviction
from distlock.errors import BackendUnavailable, shown_as

#: Seconds between checks whether an interrupt has dropped a connection.
_CHECK = 0.05
#: The most replies that may be pending on a connection. More of them could fill the buffers of both ends.
_MOST_PENDING = 64


class PostedCall(PendingReply, Protocol):
    """A call that was sent, and whose reply is read later."""

    connection: weakref.ref[RedisConnection] | None
    #: Whether its reply was read.
    over: bool
    #: The time after which the reply is no longer expected.
    until: float


@shown_as(BackendUnavailable)
class Stale(BackendUnavailable):
    """An idle connection was dead. Most likely the server received nothing of the call."""


class Pool:
    """At most *size* connections. The one used last is used first. A forked child needs another pool."""

    def __init__(
        self, address: RedisAddress, make: Callable[[], RedisConnection], size: int, sink: Sink | None = None
    ) -> None:
        self._address = address
        self._make = make
        self._size = size
        self._sink = sink
        #: The number of connections that broke and have not been replaced yet.
        self._broken = 0
        #: The connections that no call uses, the one used last at the end. Appending and popping are atomic,
        #: so that only a thread that waits needs the condition.
        self._idle: list[RedisConnection] = []
        #: All connections. Weak, so that one that an interrupt has dropped does not count for ever.
        self._all: weakref.WeakSet[RedisConnection] = weakref.WeakSet()
        #: The lock of `_freed`, entered directly: a signal handler that raises in `Condition.__enter__` would
        #: leave it locked.
        self._mutex = threading.RLock()
        self._freed = threading.Condition(self._mutex)
        self._waiting = 0
        #: A weak reference to the function that writes off connections that won't be given back: None if
        #: there is no such function. Called when there are *size* connections and none is idle.
        self.sweep_ref: Callable[[], Callable[[], None] | None] = lambda: None
        #: The number of connections that `collect` uses. `_borrow` waits for them, and makes no other one.
        self._collecting = 0
        self._policy_known = False

    def exchange(
        self, commands: Sequence[bytes], deadline: float, connection: RedisConnection | None = None
    ) -> list[Any]:
        """Send *commands* together and return their replies.

        Args:
            commands: Encoded commands.
            deadline: When the exchange ends, connecting included.
            connection: A connection that was claimed for this exchange; by default, any.

        Returns:
            The replies. A refusal is a `ReplyError`.

        Raises:
            Stale: The connection was dead, and a second attempt is worth it.
            BackendUnavailable: The exchange was not completed.
        """
        fresh = False
        if connection is None:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection, fresh = self._borrow(deadline)
        try:
            if fresh:
                self._connect(connection, deadline)
            replies = connection.ask(commands, deadline)
        # RuntimeError: no thread can be started. ValueError: a name or certificate can't be used.
        except (OSError, ReplyError, ValueError, RuntimeError) as error:
            self._discard(connection)
            failure = error
        except BaseException:
            # A part of the reply may still arrive, and the next call would take it for its own reply. See
            # https://github.com/redis/redis-py/issues/2624
            self._discard(connection)
            raise
        else:
            self._idle.append(connection)
            if self._waiting:
                self._wake()
            if fresh:
                self._count_reconnection()
            return replies
        raise self._note_failure(failure, fresh)

    def _connect(self, connection: RedisConnection, deadline: float) -> None:
        connection.connect(deadline)
        if not self._policy_known:
            self._policy_known = warn_of_eviction(self._address, connection, deadline)

    def post(self, command: bytes, posted: PostedCall, deadline: float) -> bool:
        """Send *command*, and leave its reply to the next exchange on its connection, or to `collect`.

        Return False if the command can't be sent without waiting. Raises `BackendUnavailable` or `Stale`.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return False
        posted.connection = weakref.ref(connection)
        try:
            if len(connection.pending) >= _MOST_PENDING:
                self.give_back(connection)
                return False
            connection.pending.append(posted)
            connection.send(command, deadline)
        except (OSError, ValueError) as error:
            self._discard(connection)
            raise self._note_failure(error, fresh=False) from None
        except BaseException:
            self._discard(connection)
            raise
        self._idle.append(connection)
        if self._waiting:
            self._wake()
        return True

    def lend(self, posted: PostedCall | None = None) -> RedisConnection | None:
        """Lend an idle connection, or the one of *posted*, until `give_back`. Return None if none is idle."""
        try:
            if posted is None:
                return self._idle.pop()
            connection = None if posted.connection is None else posted.connection()
            self._idle.remove(connection)  # type: ignore[arg-type]
        except (IndexError, ValueError):
            return None
        return connection

    def give_back(self, connection: RedisConnection) -> None:
        """Take back a connection on which nothing but pending replies will arrive."""
        self._idle.append(connection)
        self.wake()

    def discard_broken(self, connection: RedisConnection, failure: OSError) -> None:
        """Discard a lent connection because of *failure*, and all idle ones, which may be dead, too."""
        self._discard(connection)
        self._note_failure(failure, fresh=False)

    def error_for(self, failure: OSError) -> BackendUnavailable:
        """Return the error that a caller gets for *failure*."""
        return unavailable(self._address, failure)

    def write_off(self, connection: RedisConnection) -> None:
        """Shut *connection* down, which will not be given back, and make room for another one."""
        connection.shut_down()
        with self._mutex:
            self._all.discard(connection)
            self._freed.notify_all()

    def wake(self) -> None:
        """Have threads that wait for a connection, or for a reply, check again."""
        if self._waiting:
            self._wake()

    def claim(self, posted: PostedCall, deadline: float) -> RedisConnection | None:
        """Wait until *deadline* for the connection of *posted*, and lend it to a call of `exchange`.

        Return None after *deadline*, or if the reply to *posted* was read meanwhile or will not come.
        """
        with self._mutex:
            self._waiting += 1
            try:
                while not (posted.over or posted.lost) and (left := deadline - clock.now()) > 0:
                    if (connection := self.lend(posted)) is not None:
                        return connection
                    self._freed.wait(min(left, _CHECK))
            finally:
                self._waiting -= 1
        return None

    def collect(self, posted: PostedCall, deadline: float) -> None:
        """Read the reply to *posted* if it comes by *deadline* and no other call uses its connection."""
        with self._mutex:
            if (connection := self.lend(posted)) is None:
                return
            self._collecting += 1
        try:
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
        """Close the idle connections. Connections in use stay open."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _wake(self) -> None:
        with self._mutex:
            self._freed.notify_all()

    def _note_failure(self, failure: Exception, fresh: bool) -> BackendUnavailable:
        """Return the error to raise for *failure*. Unless the connection was *fresh*, close all idle ones.

        The error is `Stale` if the connection was not fresh, and failed otherwise than by a timeout.
        """
        error = unavailable(self._address, failure)
        if fresh:
            return error
        # The other connections have been idle for longer, and are most likely dead, too.
        self.clear()
        self._note_broken()
        if isinstance(failure, OSError) and not isinstance(failure, TimeoutError):
            stale = Stale(str(error))
            stale.__cause__ = error.__cause__
            stale.__suppress_context__ = True
            return stale
        return error

    def _borrow(self, deadline: float) -> tuple[RedisConnection, bool]:
        """Return a connection, and whether it has to connect first. Wait for one until *deadline*."""
        if len(self._all) >= self._size and (sweep := self.sweep_ref()) is not None:
            sweep()
        with self._mutex:
            # Counted before the check, so that a thread that gives a connection back later wakes us.
            self._waiting += 1
            try:
                while True:
                    # Other threads take and give back idle connections without the mutex.
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

    def _count_reconnection(self) -> None:
        """Count a reconnection, for metrics, if a new connection that works replaces a broken one."""
        with self._mutex:
            replaces = self._broken > 0
            self._broken -= replaces
        if replaces and self._sink is not None:
            self._sink.reconnected()

    def _discard(self, connection: RedisConnection) -> None:
        connection.disconnect()
        with self._mutex:
            self._all.discard(connection)
            self._freed.notify_all()
