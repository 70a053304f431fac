"""One of the servers, and the threads that ask it: so all servers are asked side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from distlock import clock, reentrance
from distlock.backends.base import LockRequest
from distlock.backends.redlock.member import Member
from distlock.errors import BackendUnavailable

#: Threads for each server, and connections. What is asked for one key, one of them asks, in its order.
LANES = 4
#: So long a failure is believed, seconds. While anybody asks, one look after the other is under way.
_FRESH = 1.0
#: So many releases are kept for one that is away. What it has granted otherwise ends with its lease.
_MANY = 1000

#: A call for a server, and the function that gets the answer or the error.
Call = Callable[["Server"], Any]
Tell = Callable[[Any], None]


def tell_nobody(answer: object) -> None:
    pass


class _Job(NamedTuple):
    call: Call
    tell: Tell
    #: The moment in which it was put there.
    put: float


class Server:
    """*shown*: what people are told where it is."""

    def __init__(self, backend: Member, shown: str) -> None:
        self.backend = backend
        self.shown = shown
        self._begin()

    def _begin(self) -> None:
        self._mutex = threading.Lock()
        self._lanes: dict[int, _Lane] = {}
        #: Why it is away, and since when; None: it is not, as far as is known.
        self._failure: BackendUnavailable | None = None
        self._failed_at = 0.0
        #: Locked while somebody looks whether it is back.
        self._looking = threading.Lock()
        #: By token: what it may have granted, or may grant yet, and nobody wants any more.
        self._owed: dict[str, LockRequest] = {}

    def ask(self, key: str, call: Call, tell: Tell) -> None:
        """Have *call* made in another thread, behind those for *key* before it, and *tell* its answer."""
        try:
            lane = self._lane(hash(key) % LANES)
        except RuntimeError as error:
            tell(BackendUnavailable(f"No thread could be started for the server at {self.shown}: {error}."))
            return
        lane.jobs.put(_Job(call, tell, clock.now()))

    def away(self) -> BackendUnavailable | None:
        """Why it is away; None: it is not, as far as is known. Whether it is back is looked for aside."""
        failure = self._failure
        if failure is None or clock.now() >= self._failed_at + _FRESH:
            return None
        if self._looking.acquire(blocking=False):
            self.ask("", _look, self._seen)
        return failure

    def release(self, ask: LockRequest, tell: Tell) -> None:
        """As `ask`. Where there is no answer it is done again when the server is back."""

        def told(answer: object) -> None:
            if isinstance(answer, BackendUnavailable):
                with self._mutex:
                    if len(self._owed) >= _MANY:
                        del self._owed[next(iter(self._owed))]
                    self._owed[ask.token] = ask
            tell(answer)

        self.ask(ask.key, lambda server: server.backend.release(ask), told)

    def _pay(self) -> None:
        with self._mutex:
            owed, self._owed = self._owed, {}
        for ask in owed.values():
            self.release(ask, tell_nobody)

    def _seen(self, answer: object) -> None:
        self._looking.release()

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
        try:
            answer = reentrance.call(job.call, self)
        except BackendUnavailable as error:
            self._failed_at = clock.now()
            self._failure = error
            return error
        except Exception as error:
            return error
        self._failure = None
        if self._owed:
            self._pay()
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


def _look(server: Server) -> bool:
    return server.backend.locked("")


class _Lane:
    """A thread that does its jobs in their order."""

    def __init__(self, answer: Callable[[_Job], Any]) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._answer = answer
        self.thread = threading.Thread(target=self._run, name="distlock-redlock", daemon=True)

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.tell(self._answer(job))
