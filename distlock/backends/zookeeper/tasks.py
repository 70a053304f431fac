"""Calls of event loops, without a thread: the same generators, which continue as replies come.

That is kazoo's thread. So a call goes on also where its loop stands still. There it ends with the answer, or
with the connection, which is given up when the server has said nothing for its `io_timeout`; it sends nothing
after its own end, and others do not wait for it (`distlock.engine.commands.Call.is_over`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from distlock import clock, reentrance
from distlock.backends.base import LockRequest
from distlock.backends.optional import REPEAT, Begun
from distlock.backends.zookeeper.contenders import Contenders
from distlock.backends.zookeeper.exchanges import Block, Deadline, Exchanges, ZooKeeperReply
from distlock.backends.zookeeper.latches import ZooKeeperLatches
from distlock.backends.zookeeper.sessions import ZooKeeperSessions
from distlock.errors import BackendUnavailable


class TaskCall(Begun):
    """One call. It sends nothing after its end. *over* is called with it at its end."""

    __slots__ = ("_awaited", "_exchanges", "_mutex", "_over", "_timer", "_when_over")

    def __init__(
        self, ends: float, exchanges: Exchanges[Any], over: Callable[[TaskCall], None] = lambda _: None
    ) -> None:
        super().__init__(asyncio.get_running_loop(), ends)
        self._exchanges = exchanges
        self._when_over = over
        self._mutex = threading.Lock()
        self._awaited: ZooKeeperReply | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        with self._mutex:
            # Another thread may have ended it already.
            if not self._over:
                self._go_on(None)
        if not self._over:
            left = self.ends - clock.now()
            self._timer = self.get_loop().call_later(left, reentrance.call, self._time_is_over)

    def drop(self) -> None:
        """End the call: it sends nothing any more, and its outcome is unknown. Any thread may call this."""
        with self._mutex:
            if not self._over:
                self._exchanges.close()
                self._end(self.set_exception, BackendUnavailable("It was given up before it was answered."))

    def _time_is_over(self) -> None:
        with self._mutex:
            if not self._over:
                self._go_on(self._awaited is not None and self._awaited.ready())

    def _heard(self, answer: ZooKeeperReply) -> None:
        """Continue with *answer*. kazoo's thread calls this."""
        with self._mutex:
            if answer is self._awaited and not self._over:
                self._go_on(clock.now() < self.ends)

    def _go_on(self, said: bool | None) -> None:
        """Continue until the next wait. *said*: whether the answer has come; None at the beginning."""
        try:
            while True:
                step = next(self._exchanges) if said is None else self._exchanges.send(said)
                if isinstance(step, Block):
                    self._exchanges.close()
                    self._end(self.set_result, REPEAT)
                    return
                self._awaited = step.answer
                step.answer.on_ready(self._heard)
                said = step.answer.ready()
                if not said and step.seconds > 0:
                    return
        except StopIteration as stop:
            self._end(self.set_result, stop.value)
        except Exception as error:
            self._end(self.set_exception, error)
        except BaseException:
            self._exchanges.close()
            self._end(self.set_result, REPEAT)
            raise

    def _end(self, end: Callable[[Any], None], answer: Any) -> None:
        self._over, self._awaited = True, None
        self._when_over(self)
        if self._is_in_its_loop():
            self._tell(end, answer)
            return
        # A closed loop can't be notified.
        with suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._tell, end, answer)

    def _is_in_its_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.get_loop()
        except RuntimeError:
            return False

    def _tell(self, end: Callable[[Any], None], answer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done():
            end(answer)


class ZooKeeperTaskCalls:
    """The calls of one process. Each returns a future, or None if it would have to block."""

    def __init__(self, sessions: ZooKeeperSessions, io_timeout: float) -> None:
        self._sessions = sessions
        self._io_timeout = io_timeout
        #: By token.
        self._under_way: dict[str, TaskCall] = {}

    def drop(self, request: LockRequest) -> None:
        """End the call for *request* of a loop that hangs, so that it sends nothing after the next call."""
        if (asked := self._under_way.get(request.token)) is not None:
            asked.drop()

    def forget(self) -> None:
        """Forget the parent's calls, in a forked child."""
        self._under_way = {}

    def request(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Contenders.request, request, deadline)

    def cancel(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Contenders.cancel, request, deadline)

    def downgrade(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Contenders.downgrade, request, deadline)

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float
    ) -> Begun | None:
        contenders = self._sessions.ready(request.ttl, request.key)
        if contenders is None or not contenders.post(request, notify):
            return None
        sent = Begun(asyncio.get_running_loop(), deadline)
        sent.set_result(None)
        return sent

    def make_latch(self, key: str, total: int, ttl: float, maker: str, deadline: float) -> Begun | None:
        return self._of_latches(deadline, lambda latches, ends: latches.make(key, total, ttl, maker, ends))

    def count_latch_down(self, key: str, by: int, part: str, life: str, deadline: float) -> Begun | None:
        return self._of_latches(deadline, lambda latches, ends: latches.count(key, by, part, life, ends))

    def delete_latch(self, key: str, life: str, deadline: float) -> Begun | None:
        return self._of_latches(deadline, lambda latches, ends: latches.delete(key, life, ends))

    def look_at_latches(self, keys: Sequence[str], watch: bool, deadline: float) -> Begun | None:
        return self._of_latches(deadline, lambda latches, ends: latches.look(keys, watch, ends))

    def _begin(
        self,
        call: Callable[[Contenders, LockRequest, Deadline], Exchanges[Any]],
        request: LockRequest,
        deadline: float,
    ) -> Begun | None:
        contenders = self._sessions.ready(request.ttl, request.key)
        if contenders is None:
            return None
        self.drop(request)
        ends = self._ends(deadline)
        asked = self._under_way[request.token] = TaskCall(
            ends, call(contenders, request, ends), partial(self._over, request.token)
        )
        asked.begin()
        return asked

    def _of_latches(
        self, deadline: float, call: Callable[[ZooKeeperLatches, Deadline], Exchanges[Any]]
    ) -> Begun | None:
        contenders = self._sessions.any_ready()
        if contenders is None:
            return None
        ends = self._ends(deadline)
        asked = TaskCall(ends, call(contenders.latches, ends))
        asked.begin()
        return asked

    def _ends(self, deadline: float) -> Deadline:
        """Return a deadline that is not extended, because the engine relies on the end of a call."""
        return Deadline(self._io_timeout, min(deadline, clock.now() + self._io_timeout), hard=True)

    def _over(self, token: str, asked: TaskCall) -> None:
        if self._under_way.get(token) is asked:
            self._under_way.pop(token, None)
