"""Calls of tasks, without a thread. They are pipelined on one connection for each event loop.

Only the usual case is handled here, so that nothing blocks the loop. If there is no idle connection, nothing
is sent, and there is no future. If the connection breaks, or the server answers anything unusual, the result
is `REPEAT`. In both cases a thread makes the call, and handles the rest.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distlock import clock, signal_safety
from distlock.backends.base import LockRequest
from distlock.backends.latches import LatchState
from distlock.backends.protocols import REPEAT, Begun
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import ScriptCaller
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.latches import LatchArguments, encode_latch_call, latch_in, latch_to_make
from distlock.backends.redis.pending_releases import PendingRelease, PendingReleases
from distlock.backends.redis.pool import Pool
from distlock.backends.redis.queue_entries import QueueEntries
from distlock.backends.redis.scripts import BUSY, FOREIGN, NO_POLL, Script, bulk, encode
from distlock.errors import BackendUnavailable

#: A function that turns a reply into the result. It raises `BackendUnavailable`, or OSError if the reply
#: can't be one to this call.
Understand = Callable[[object], Any]

#: If `_PENDING` replies are pending on an idle connection, read those that have come before sending the next
#: release. If `_MOST_PENDING` are still pending then, a thread sends the release.
_PENDING, _MOST_PENDING = 64, 1024
#: Seconds after the deadline of a call until its event loop counts as hung.
_GRACE = 1.0


class Awaited(Begun):
    """One call whose reply is pending."""

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
            answer = REPEAT if isinstance(reply, ReplyError) else self._understand(reply)
        except BackendUnavailable as error:
            self.set_exception(error)
        else:
            self.set_result(answer)
        self._pipeline.awaited -= 1


@dataclass(eq=False)
class Pipeline:
    """The pipelined calls of one event loop. It borrows a connection of the pool while replies are pending.

    Only the loop's thread may use it, except `is_stuck`, `drop`, `forget` and `retired`.
    """

    _pool: Pool
    _loop: asyncio.AbstractEventLoop | None = None
    _connection: RedisConnection | None = None
    #: The number of calls whose reply is pending.
    awaited: int = 0
    #: Bytes that the socket has not taken yet.
    _unsent: bytes = b""
    #: The futures of callers that wait until these bytes are sent.
    _sending: list[Begun] = field(default_factory=list)
    #: The descriptor that the loop watches; -1: none.
    _file: int = -1
    #: Whether the loop can watch a socket, which some loops can't.
    _can_watch: bool = True
    #: When the loop will call `_expire`. The timer itself is not kept, because it refers to the loop, and
    #: loop and pipeline would keep each other alive.
    _wakes: float = math.inf
    #: Whether the client was closed, so that no connection goes back to its pool.
    retired: bool = False

    def ask(
        self,
        command: Callable[[], bytes],
        understand: Understand,
        deadline: float,
        posted: PendingRelease | None = None,
    ) -> Begun | None:
        """Send the result of *command*, and return the future of the reply.

        Return None if the sending fails, or is impossible without waiting. *posted*: a pending release, which
        the command has to follow on the same connection.
        """
        connection = self._connection or self._idle(posted)
        if connection is None:
            return None
        if posted is not None and (posted.connection is None or posted.connection() is not connection):
            return None
        sent = command()
        awaited = Awaited(asyncio.get_running_loop(), deadline, self, understand)
        connection.pending.append(awaited)
        self.awaited += 1
        self._send(connection, sent)
        if awaited.lost:
            return None
        self._expire_at(deadline)
        return awaited

    def post(self, command: bytes, posted: PendingRelease, deadline: float) -> bool:
        """Send *command* without waiting for its reply. Return False if it can't be sent now."""
        connection = self._connection or self._idle()
        if connection is None or not self._make_room(connection):
            return False
        posted.connection = weakref.ref(connection)
        connection.pending.append(posted)
        # Return True even if the sending fails, because the release may have arrived. It is lost then, and
        # will be repeated.
        self._send(connection, command)
        return True

    def sent(self, deadline: float) -> Begun:
        """Return a future that is done when all posted commands have been sent, or are lost."""
        sent = Begun(asyncio.get_running_loop(), deadline)
        if self._unsent:
            self._sending.append(sent)
            self._expire_at(deadline)
        else:
            sent.set_result(None)
        return sent

    def _make_room(self, connection: RedisConnection) -> bool:
        """Return whether one more reply may be pending. Read replies first if there are many."""
        if self._connection is not None or len(connection.pending) < _PENDING:
            return True
        try:
            connection.drain()
        except OSError as error:
            self._pool.discard_broken(connection, error)
            return False
        if len(connection.pending) < _MOST_PENDING:
            return True
        self._pool.give_back(connection)
        return False

    def _idle(self, posted: PendingRelease | None = None) -> RedisConnection | None:
        return self._pool.lend(posted) if self._can_watch else None

    def _send(self, connection: RedisConnection, command: bytes) -> None:
        """Send *command*, or as much of it as the socket takes. If the connection fails, the calls fail."""
        self._connection = connection
        try:
            if self._unsent:
                self._unsent += command
                return
            # Send before the loop watches the socket, so that the server can begin.
            self._unsent = connection.send_some(command)
            if self._unsent or (self.awaited and self._file == -1):
                self._watch_socket(connection)
            elif not self.awaited:
                self._give_back()
        except OSError as error:
            self._fail(error)
        except NotImplementedError:
            self._can_watch = False
            self._fail(OSError("the event loop can't look at sockets"))
        except BaseException:
            self._fail(OSError("it was interrupted"))
            raise

    def _watch_socket(self, connection: RedisConnection) -> None:
        """Have the loop call us when a reply comes, or when the socket has room for unsent bytes."""
        self._loop = asyncio.get_running_loop()
        self._file = connection.fileno()
        self._loop.add_reader(self._file, self._readable)
        if self._unsent:
            self._loop.add_writer(self._file, self._writable)

    def _readable(self) -> None:
        """Read the replies that have come. The loop calls this, and `_expire` before it fails calls."""
        connection = self._connection
        if connection is None:
            return
        try:
            signal_safety.call(connection.drain)
        except OSError as error:
            self._fail(error)
        except BaseException:
            self._fail(OSError("it was interrupted"))
            raise
        else:
            self._pool.wake()
            if not self.awaited and not self._unsent:
                self._give_back()

    def _writable(self) -> None:
        """Send the unsent bytes, or a part of them. The loop calls this."""
        connection = self._connection
        if connection is None:
            return
        try:
            unsent = signal_safety.call(connection.send_some, self._unsent)
        except OSError as error:
            self._fail(error)
            return
        if not unsent and self._loop is not None:
            self._loop.remove_writer(self._file)
            while self._sending:
                self._sending.pop().set_result(None)
        self._unsent = unsent
        if not unsent and not self.awaited:
            self._give_back()

    def _expire_at(self, deadline: float) -> None:
        """Set the timer, which all calls share, for *deadline*, unless it is set for an earlier time."""
        if deadline < self._wakes:
            self._wakes = deadline
            asyncio.get_running_loop().call_later(deadline - clock.now(), self._expire, deadline)

    def _expire(self, wakes: float) -> None:
        """If the deadline of a call is over, discard the connection: see `_fail`. The timer calls this."""
        if wakes != self._wakes:
            return
        self._wakes = math.inf
        # Even after the deadline, a reply that has arrived counts.
        self._readable()
        ends = [one.ends for one in self._all()]
        if not ends:
            return
        if min(ends) <= clock.now():
            self._fail(TimeoutError("it did not answer in time"))
        else:
            self._expire_at(min(ends))

    def _all(self) -> list[Begun]:
        """Return all futures that callers await."""
        connection = self._connection
        pending = () if connection is None else tuple(connection.pending)
        return [*self._sending, *[one for one in pending if isinstance(one, Awaited)]]

    def _give_back(self) -> None:
        """Give the connection back to the pool, because no reply is pending any more."""
        connection = self._connection
        self._unwatch()
        if connection is None:
            return
        if self.retired:
            connection.disconnect()
        else:
            self._pool.give_back(connection)

    def _fail(self, failure: OSError) -> None:
        """Discard the connection because of *failure*, and end all calls.

        Calls whose deadline is over get the failure, and the other calls get `REPEAT`.
        """
        connection, awaited, now = self._connection, self._all(), clock.now()
        self._unwatch()
        if connection is None:
            return
        self._pool.discard_broken(connection, failure)
        for one in awaited:
            if not isinstance(one, Awaited):
                one.set_result(None)
            elif one.ends <= now:
                one.set_exception(self._pool.error_for(failure))
            else:
                one.set_result(REPEAT)

    def _unwatch(self) -> None:
        """Have the loop stop watching the connection, and forget the connection."""
        if self._file != -1 and self._loop is not None:
            self._loop.remove_reader(self._file)
            if self._unsent:
                self._loop.remove_writer(self._file)
        self.forget()

    # -- from any thread -------------------------------------------------------------------------

    def is_stuck(self, now: float) -> bool:
        """Return whether the loop has a connection of the pool, and is closed or hangs."""
        return any(one.ends + _GRACE <= now or one.get_loop().is_closed() for one in self._all())

    def drop(self) -> None:
        """Shut this connection down, which is stuck, and let the pool replace it."""
        connection, awaited = self._connection, self._all()
        if connection is None:
            return
        self._pool.write_off(connection)
        if any(one.get_loop().is_closed() for one in awaited):
            # A closed loop no longer watches the descriptor, so it can be closed. The connection would keep
            # the futures of its calls alive, so forget it.
            connection.disconnect()
            self.forget()

    def forget(self) -> None:
        """Forget the connection. In a forked child, it and the loop belong to the parent."""
        self._connection = self._loop = None
        self._file, self._unsent, self.awaited = -1, b"", 0
        self._sending = []


class TaskCalls:
    """The calls of a backend that tasks make without a thread.

    Each does what the `RedisBackend` method of its name does (see `Backend`), and returns a future of its
    result; or None if nothing was sent because the call would have to wait.
    """

    def __init__(
        self, caller: ScriptCaller, pool: Pool, releases: PendingReleases, entries: QueueEntries
    ) -> None:
        self._about = caller.about
        self._releases = releases
        self._entries = entries
        self._pool = pool
        pool.sweep_ref = weakref.WeakMethod(self._sweep)
        self._mutex = threading.Lock()
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pipeline] = weakref.WeakKeyDictionary()

    def pipeline(self) -> Pipeline:
        """Return the pipeline of the running loop."""
        loop = asyncio.get_running_loop()
        pipeline = self._of.get(loop)
        if pipeline is None:
            self._sweep()
            with self._mutex:
                pipeline = self._of.setdefault(loop, Pipeline(self._pool))
        return pipeline

    def _sweep(self) -> None:
        """Give up the connections of loops that are closed or hang."""
        now = clock.now()
        for pipeline in self._all():
            if pipeline.is_stuck(now):
                pipeline.drop()

    def retire(self) -> None:
        """Note that the client was closed. Calls in progress still get their replies."""
        for pipeline in self._all():
            pipeline.retired = True

    def forget(self) -> None:
        """Forget the parent's connections, in a forked child."""
        for pipeline in list(self._of.values()):
            pipeline.forget()

    def _all(self) -> list[Pipeline]:
        with self._mutex:
            return list(self._of.values())

    def request(self, request: LockRequest, deadline: float) -> Begun | None:
        queue = request.wait and self._entries.may_queue()

        def result(reply: list[Any]) -> object:
            request.unanswered -= 1
            # To subscribe, or to find the foreign keys, takes several round trips: a thread does that.
            if reply[1] == FOREIGN or (reply[1] == BUSY and request.wait and not queue):
                return REPEAT
            return self._entries.interpret(request, reply)

        def more() -> bytes:
            request.unanswered += 1
            return bulk(*self._entries.poll(request)) if queue else NO_POLL

        return self._call(scripts.REQUEST[request.mode], request, result, deadline, more, queue)

    def cancel(self, request: LockRequest, deadline: float) -> Begun | None:
        def result(reply: list[Any]) -> object:
            self._entries.forget(request)
            kept = bool(reply[1])
            if not kept:
                self._releases.forget(request)
            return kept

        return self._call(
            scripts.CANCEL, request, result, deadline, lambda: bulk(self._entries.entry(request))
        )

    def acknowledge(self, handed: Sequence[tuple[LockRequest, int]], deadline: float) -> Begun | None:
        if len(handed) != 1:
            return None
        ((request, number),) = handed

        def result(reply: list[Any]) -> object:
            self._entries.forget(request)
            return [bool(reply[1])]

        return self._call(scripts.ACKNOWLEDGE, request, result, deadline, lambda: bulk(number))

    def downgrade(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._call(scripts.DOWNGRADE, request, lambda reply: bool(reply[1]), deadline)

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float
    ) -> Begun | None:
        """Send the release of *request*. The future is done when the release has been sent, or is lost."""
        self._entries.forget(request)
        pipeline = self.pipeline()
        if not self._releases.post(request, notify, deadline, pipeline.post):
            return None
        return pipeline.sent(deadline)

    def make_latch(self, key: str, total: int, ttl: float, maker: str, deadline: float) -> Begun | None:
        return self._latch_call(latch_to_make(key, total, ttl, maker), deadline)

    def count_latch_down(self, key: str, by: int, part: str, life: str, deadline: float) -> Begun | None:
        return self._latch_call(("count", key, part, by, life), deadline)

    def delete_latch(self, key: str, life: str, deadline: float) -> Begun | None:
        return self._latch_call(("delete", key, life), deadline, lambda state: state is not None)

    def look_at_latches(self, keys: Sequence[str], watch: bool, deadline: float) -> Begun | None:
        # A watch needs the subscription, which may have to be started.
        if watch or len(keys) != 1:
            return None
        return self._latch_call(("look", keys[0], ""), deadline, lambda state: [state])

    def _call(
        self,
        script: Script,
        request: LockRequest,
        result: Callable[[list[Any]], object],
        deadline: float,
        more: Callable[[], bytes] = bytes,
        queue: bool = False,
    ) -> Begun | None:
        """Call *script*. *more* returns further arguments. It is called only if the call will be sent."""
        # The call has to follow a pending release of the key on the same connection.
        pending = self._releases.by_key.get(request.key)
        token = request.token.encode()

        def understand(reply: Any) -> object:
            if pending is not None and pending.lost:
                return REPEAT
            if not script.accepts(reply, token):
                raise OSError("it answered something that was not asked")
            return result(reply)

        def call() -> bytes:
            return encode(script, request, self._about, queue, more())

        return self.pipeline().ask(call, understand, deadline, pending)

    def _latch_call(
        self,
        asked: LatchArguments,
        deadline: float,
        result: Callable[[LatchState | None], object] = lambda state: state,
    ) -> Begun | None:
        def understand(reply: object) -> object:
            return result(latch_in(reply))

        return self.pipeline().ask(partial(encode_latch_call, asked), understand, deadline)
