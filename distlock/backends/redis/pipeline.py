"""Calls of event loops: sent one behind the other on a connection, and answered in that order.

Only what is usual is done here, so that nothing ever waits but the tasks. Where there is no connection, or it
breaks, or the server says anything else, the answer is `REPEAT`: a thread makes the same call, and knows what
to do about all that.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable
from typing import Any

from distlock import clock, reentrance
from distlock.backends.optional import REPEAT, Begun
from distlock.backends.redis.connection import Connection
from distlock.backends.redis.pool import Pool, Posted
from distlock.errors import BackendUnavailable

#: What to make of a reply. Raises `BackendUnavailable`, or OSError for nonsense.
Understand = Callable[[object], Any]

#: From so many answers on that are owed on an idle connection, those that have come are read before another
#: call is sent; so many may not have come.
_OWED, _MOST_OWED = 64, 1024
#: Seconds after its end in which a busy event loop may still see to a call.
_GRACE = 1.0


class Awaited(Begun):
    """One call, which its connection owes an answer."""

    __slots__ = ("_pipeline", "_understand", "lost")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ends: float, pipeline: Pipeline, understand: Understand
    ) -> None:
        super().__init__(loop, ends)
        self._pipeline = pipeline
        self._understand = understand
        self.lost = False

    def answered(self, reply: object) -> None:
        try:
            answer = self._understand(reply)
        except BackendUnavailable as error:
            self.set_exception(error)
        else:
            self.set_result(answer)
        self._pipeline.awaited -= 1


class Pipeline:
    """Those of one event loop. It has a connection of the pool while an answer is awaited.

    Belongs to the loop's thread, but for `is_stuck`, `drop` and `forget`.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        #: How many answers are.
        self.awaited = 0
        #: What did not go at once, …
        self._unsent = b""
        #: … and those told when it is gone.
        self._sending: list[Begun] = []
        #: What the loop looks at.
        self._file = -1
        #: Loops may have no way to look at a socket.
        self._can_look = True
        #: When the loop is to call `_end`. Its timer is not kept: that has the loop, which would live for as
        #: long as its pipeline, and this for as long as the loop.
        self._wakes = math.inf
        #: The client was closed: no connection goes back to its pool.
        self.retired = False

    def connection(self, posted: Posted | None = None) -> Connection | None:
        """For `ask`: that of *posted* if there is one. None: not now."""
        connection = self._connection or self._idle(posted)
        if connection is not None and posted is not None and not _is_of(posted, connection):
            return None
        return connection

    def ask(
        self, connection: Connection, command: bytes, understand: Understand, deadline: float
    ) -> Begun | None:
        """Send *command*. None: that failed."""
        awaited = Awaited(asyncio.get_running_loop(), deadline, self, understand)
        connection.owed.append(awaited)
        self.awaited += 1
        self._send(connection, command)
        if awaited.lost:
            return None
        self._watch(deadline)
        return awaited

    def post(self, command: bytes, posted: Posted, deadline: float) -> bool:
        """Send *command*, and leave its answer to what is asked later. False: not now."""
        connection = self.connection()
        if connection is None or not self._has_room(connection):
            return False
        posted.connection = weakref.ref(connection)
        connection.owed.append(posted)
        # If that fails it is lost, and repeated as such: it may have arrived.
        self._send(connection, command)
        return True

    def sent(self, deadline: float) -> Begun:
        """Done as soon as all is sent that was posted, or lost."""
        sent = Begun(asyncio.get_running_loop(), deadline)
        if self._unsent:
            self._sending.append(sent)
            self._watch(deadline)
        else:
            sent.set_result(None)
        return sent

    def _has_room(self, connection: Connection) -> bool:
        """Whether one more answer may be owed. Where the loop looks at it, they are read as they come."""
        if self._connection is not None or len(connection.owed) < _OWED:
            return True
        try:
            connection.collect_some()
        except OSError as error:
            self._pool.broke(connection, error)
            return False
        if len(connection.owed) < _MOST_OWED:
            return True
        self._pool.give_back(connection)
        return False

    def _idle(self, posted: Posted | None = None) -> Connection | None:
        return self._pool.lend(posted) if self._can_look else None

    def _send(self, connection: Connection, command: bytes) -> None:
        self._connection = connection
        try:
            if self._unsent:
                self._unsent += command
                return
            # First, so that the server has it while the loop is told.
            self._unsent = connection.send_some(command)
            if self._unsent or (self.awaited and self._file == -1):
                self._look_at(connection)
            elif not self.awaited:
                self._abandon()
        except OSError as error:
            self._fail(error)
        except NotImplementedError:
            self._can_look = False
            self._fail(OSError("the event loop can't look at sockets"))
        except BaseException:
            self._fail(OSError("it was interrupted"))
            raise

    def _look_at(self, connection: Connection) -> None:
        """Have the loop tell of answers, and of room for what is unsent."""
        self._loop = asyncio.get_running_loop()
        self._file = connection.fileno()
        self._loop.add_reader(self._file, self._readable)
        if self._unsent:
            self._loop.add_writer(self._file, self._writable)

    def _readable(self) -> None:
        """An answer has come, or the connection broke."""
        connection = self._connection
        if connection is None:
            return
        try:
            reentrance.call(connection.collect_some)
        except OSError as error:
            self._fail(error)
        except BaseException:
            self._fail(OSError("it was interrupted"))
            raise
        else:
            self._pool.tell()
            if not self.awaited and not self._unsent:
                self._abandon()

    def _writable(self) -> None:
        """There is room for what is unsent, or for a part of it."""
        connection = self._connection
        if connection is None:
            return
        try:
            unsent = reentrance.call(connection.send_some, self._unsent)
        except OSError as error:
            self._fail(error)
            return
        if not unsent and self._loop is not None:
            self._loop.remove_writer(self._file)
            while self._sending:
                self._sending.pop().set_result(None)
        self._unsent = unsent
        if not unsent and not self.awaited:
            self._abandon()

    def _watch(self, deadline: float) -> None:
        """See to it that nobody awaits anything for longer than until *deadline*.

        One timer is set for all: an answer leaves it as it is. With an earlier end there is another one.
        """
        if deadline < self._wakes:
            self._wakes = deadline
            asyncio.get_running_loop().call_later(deadline - clock.now(), self._end, deadline)

    def _end(self, wakes: float) -> None:
        """The time of some is over, if they are not answered."""
        if wakes != self._wakes:
            return
        self._wakes = math.inf
        # What is there already is taken, however late it is.
        self._readable()
        ends = [one.ends for one in self._all()]
        if not ends:
            return
        if min(ends) <= clock.now():
            self._fail(TimeoutError("it did not answer in time"))
        else:
            self._watch(min(ends))

    def _all(self) -> list[Begun]:
        """What is awaited."""
        connection = self._connection
        owed = () if connection is None else tuple(connection.owed)
        return [*self._sending, *[one for one in owed if isinstance(one, Awaited)]]

    def _abandon(self) -> None:
        """Nothing is awaited any more: others may use the connection."""
        connection = self._connection
        self._turn_away()
        if connection is None:
            return
        if self.retired:
            connection.disconnect()
        else:
            self._pool.give_back(connection)

    def _fail(self, failure: OSError) -> None:
        """The connection is good for nothing any more."""
        connection, awaited, now = self._connection, self._all(), clock.now()
        self._turn_away()
        if connection is None:
            return
        self._pool.broke(connection, failure)
        for one in awaited:
            if not isinstance(one, Awaited):
                one.set_result(None)
            elif one.ends <= now:
                one.set_exception(self._pool.told(failure))
            else:
                one.set_result(REPEAT)

    def _turn_away(self) -> None:
        """The loop looks at no connection any more."""
        if self._file != -1 and self._loop is not None:
            self._loop.remove_reader(self._file)
            if self._unsent:
                self._loop.remove_writer(self._file)
        self.forget()

    # -- from any thread -------------------------------------------------------------------------

    def is_stuck(self, now: float) -> bool:
        """Whether its loop is closed, or stands still, with a connection of the pool."""
        return any(one.ends + _GRACE <= now or one.get_loop().is_closed() for one in self._all())

    def drop(self) -> None:
        """Let the pool have another connection for the one that is stuck."""
        connection, awaited = self._connection, self._all()
        if connection is None:
            return
        self._pool.write_off(connection)
        if any(one.get_loop().is_closed() for one in awaited):
            # Nobody looks at it any more: what it was awaited by is not kept from being collected.
            connection.disconnect()
            self.forget()

    def forget(self) -> None:
        """It has no connection. In a forked child: that and the loop which looks at it are the parent's."""
        self._connection = self._loop = None
        self._file, self._unsent, self.awaited = -1, b"", 0
        self._sending = []


def _is_of(posted: Posted, connection: Connection) -> bool:
    return posted.connection is not None and posted.connection() is connection
