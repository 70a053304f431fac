"""What event loops ask of the ensemble without a thread: the same exchanges, carried on as answers come.

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
from distlock.backends.zookeeper.answer import Answer
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Block, Exchanges
from distlock.backends.zookeeper.latches import Latches
from distlock.backends.zookeeper.line import Line
from distlock.backends.zookeeper.lines import Lines
from distlock.errors import BackendUnavailable


class Asked(Begun):
    """One call. Nothing of it is sent after its end. *over*: called with it when it is over."""

    __slots__ = ("_awaited", "_exchanges", "_mutex", "_over", "_timer", "_when_over")

    def __init__(
        self, ends: float, exchanges: Exchanges[Any], over: Callable[[Asked], None] = lambda _: None
    ) -> None:
        super().__init__(asyncio.get_running_loop(), ends)
        self._exchanges = exchanges
        self._when_over = over
        self._mutex = threading.Lock()
        self._awaited: Answer | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        with self._mutex:
            # Another thread may have dropped it already.
            if not self._over:
                self._go_on(None)
        if not self._over:
            left = self.ends - clock.now()
            self._timer = self.get_loop().call_later(left, reentrance.call, self._time_is_over)

    def drop(self) -> None:
        """Send nothing any more. What it has done is not known. From any thread."""
        with self._mutex:
            if not self._over:
                self._exchanges.close()
                self._end(self.set_exception, BackendUnavailable("It was given up before it was answered."))

    def _time_is_over(self) -> None:
        with self._mutex:
            if not self._over:
                self._go_on(self._awaited is not None and self._awaited.ready())

    def _heard(self, answer: Answer) -> None:
        """Runs in kazoo's thread."""
        with self._mutex:
            if answer is self._awaited and not self._over:
                self._go_on(clock.now() < self.ends)

    def _go_on(self, said: bool | None) -> None:
        """*said*: whether what was awaited is there; None: it begins."""
        try:
            while True:
                step = next(self._exchanges) if said is None else self._exchanges.send(said)
                if isinstance(step, Block):
                    self._exchanges.close()
                    self._end(self.set_result, REPEAT)
                    return
                self._awaited = step.answer
                step.answer.tell(self._heard)
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
        # Closed, it hears nothing any more.
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


class Awaiting:
    """The calls of one process. Each returns None if nothing was sent, for it would have to wait."""

    def __init__(self, lines: Lines, io_timeout: float) -> None:
        self._lines = lines
        self._io_timeout = io_timeout
        #: By token.
        self._under_way: dict[str, Asked] = {}

    def drop(self, request: LockRequest) -> None:
        """What a loop that stands still has asked for *request* sends nothing after what is asked now."""
        if (asked := self._under_way.get(request.token)) is not None:
            asked.drop()

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self._under_way = {}

    def request(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Line.request, request, deadline)

    def cancel(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Line.cancel, request, deadline)

    def downgrade(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._begin(Line.downgrade, request, deadline)

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float
    ) -> Begun | None:
        line = self._lines.ready(request.ttl, request.key)
        if line is None or not line.post(request, told):
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
        call: Callable[[Line, LockRequest, Deadline], Exchanges[Any]],
        request: LockRequest,
        deadline: float,
    ) -> Begun | None:
        line = self._lines.ready(request.ttl, request.key)
        if line is None:
            return None
        self.drop(request)
        ends = self._ends(deadline)
        asked = self._under_way[request.token] = Asked(
            ends, call(line, request, ends), partial(self._over, request.token)
        )
        asked.begin()
        return asked

    def _of_latches(
        self, deadline: float, call: Callable[[Latches, Deadline], Exchanges[Any]]
    ) -> Begun | None:
        line = self._lines.any_ready()
        if line is None:
            return None
        ends = self._ends(deadline)
        asked = Asked(ends, call(line.latches, ends))
        asked.begin()
        return asked

    def _ends(self, deadline: float) -> Deadline:
        """Not begun anew where the process was stopped: a call ends when it was said to."""
        return Deadline(self._io_timeout, min(deadline, clock.now() + self._io_timeout), hard=True)

    def _over(self, token: str, asked: Asked) -> None:
        if self._under_way.get(token) is asked:
            self._under_way.pop(token, None)
