"""One of the servers, and the threads that ask it: so all servers are asked side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from distlock import clock, reentrance
from distlock.backends.redis import RedisBackend
from distlock.errors import BackendUnavailable

#: Threads for each server, and connections. What is asked for one key, one of them asks, in its order.
LANES = 4
#: A server that failed is asked again after twice the time that this took, and so many seconds at least.
_PAUSE = 0.01

#: What a server is asked, and who is told its answer, or the error in its place.
Call = Callable[[RedisBackend], Any]
Tell = Callable[[Any], None]


class _Job(NamedTuple):
    call: Call
    tell: Tell
    #: The moment in which it was put there.
    put: float


class Server:
    """Asked with `ask`, by any thread. While it is away nobody waits for it, but for one call now and then.

    *shown*: what people are told where it is. *io_timeout*: seconds that it has for one answer.
    """

    def __init__(self, backend: RedisBackend, shown: str, io_timeout: float) -> None:
        self.backend = backend
        self.shown = shown
        self._io_timeout = io_timeout
        self._begin()

    def _begin(self) -> None:
        self._mutex = threading.Lock()
        self._lanes: dict[int, _Lane] = {}
        #: Why it is away, and since when; None: it is not, as far as is known.
        self._failure: BackendUnavailable | None = None
        self._failed_at = 0.0
        #: From when on it is asked again.
        self._again = 0.0

    def ask(self, key: str, call: Call, tell: Tell) -> None:
        """Have *call* made, after those for *key* that came before, and *tell* its answer: in another thread.

        Where the server is away: at once, with the reason.
        """
        if (failure := self._failure) is not None and not self._is_due():
            tell(failure)
            return
        try:
            lane = self._lane(hash(key) % LANES)
        except RuntimeError as error:
            tell(BackendUnavailable(f"No thread could be started for the server at {self.shown}: {error}."))
            return
        lane.jobs.put(_Job(call, tell, clock.now()))

    def _is_due(self) -> bool:
        """Whether it is time to ask again. Others that come meanwhile go without it."""
        with self._mutex:
            now = clock.now()
            if now < self._again:
                return False
            self._again = now + 2 * self._io_timeout
            return True

    def _lane(self, number: int) -> _Lane:
        lane = self._lanes.get(number)
        if lane is None:
            with self._mutex:
                lane = self._lanes.get(number)
                if lane is None:
                    lane = _Lane(self._answer)
                    lane.thread.start()
                    self._lanes[number] = lane
        return lane

    def _answer(self, job: _Job) -> Any:
        failure = self._failure
        if failure is not None and job.put <= self._failed_at:
            # It stood behind a call that failed, and would wait as long for nothing.
            return failure
        began = clock.now()
        try:
            answer = reentrance.call(job.call, self.backend)
        except BackendUnavailable as error:
            with self._mutex:
                self._failed_at = clock.now()
                self._again = self._failed_at + max(_PAUSE, 2 * (self._failed_at - began))
                self._failure = error
            return error
        except Exception as error:
            return error
        self._failure = None
        return answer

    def dismiss(self) -> list[threading.Thread]:
        """End the threads, when they have done what they were given, and return them. Calls begin anew."""
        with self._mutex:
            lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.jobs.put(None)
        return [lane.thread for lane in lanes.values()]

    def after_fork(self) -> None:
        self._begin()
        self.backend.after_fork()


class _Lane:
    """A thread that does its jobs in their order."""

    def __init__(self, answer: Callable[[_Job], Any]) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._answer = answer
        self.thread = threading.Thread(target=self._run, name="distlock-redlock", daemon=True)

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.tell(self._answer(job))
