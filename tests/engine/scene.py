"""Processes, callers, rushes and crowds in time that the test makes up."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from distlock import Grant
from distlock.backends.memory import MemoryBackend
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Call, Commands, Park, run
from distlock.errors import TooManyWaiters
from distlock.locks.engine_namespace import EngineNamespace
from distlock.terms import Terms
from tests.engine import simulation
from tests.engine.simulation import Process, SimulatedParker, Simulation, Task

TIMEOUT = 5.0


def is_call(step: object) -> bool:
    """Return whether an algorithm asks its driver for a call to the lock service."""
    return isinstance(step, Call)


class Caller:
    """One call of `Namespace.acquire`, taken as far as it goes whenever somebody says so."""

    def __init__(
        self,
        process: Process,
        names: tuple[str, ...],
        timeout: float,
        calls: bool = True,
        on_push: bool = False,
        **terms: Any,
    ) -> None:
        self.engine = process.engine
        self._scene = process.simulation
        self.parker = SimulatedParker()
        self.parker.may_stall = not on_push
        self.grant: Grant | None = None
        self.done = False
        wanted = replace(self.engine.options, on_push=on_push, **terms)
        self._steps = EngineNamespace(self.engine, "").acquire(names, self.parker, timeout, wanted)
        try:
            self._step: Call | Park = next(self._steps)
        except StopIteration as stop:
            self.grant, self.done = stop.value, True
            return
        if calls:
            self._calls()

    def go(self) -> None:
        """Go on, as a thread does that was woken, or whose sleep is over."""
        if not self.done:
            self._send(None)
            self._calls()

    def carry_out(self) -> object:
        """Another thread has made the call that the caller is at. Returns the answer: see `hear`."""
        assert isinstance(self._step, Call)
        answer: object = self._step.function(*self._step.arguments)
        self._step.over = True
        return answer

    def overrun(self) -> None:
        """The call that the caller is at counts as over, and is not: a loop can't see to its end in time."""
        assert isinstance(self._step, Call)
        self._step.over_by = -math.inf

    def hear(self, answer: object) -> None:
        self._send(answer)
        self._calls()

    def go_and_fail(self, error: Exception, after: float) -> None:
        """Go on, with a call that fails *after* so many seconds. Raises what the caller raises."""
        self._send(None)
        assert isinstance(self._step, Call)
        self._scene.now += after
        self._steps.throw(error)

    def leave(self) -> None:
        assert self.grant is not None
        run(self.grant._release())

    def downgrade(self) -> None:
        assert self.grant is not None
        run(self.grant._downgrade())

    def _calls(self) -> None:
        while not self.done and isinstance(self._step, Call):
            self._send(self.carry_out())

    def _send(self, answer: object) -> None:
        try:
            self._step = self._steps.send(answer)
        except StopIteration as stop:
            self.grant, self.done = stop.value, True


class Scene(Simulation):
    """Processes without callers of their own, and a clock that stands still until it is told to go on."""

    def __init__(self, processes: int = 1) -> None:
        super().__init__(0, processes=processes, callers=0, settings=UNCAPPED)
        self.present = list[Caller]()

    def come(
        self, *names: str, timeout: float = TIMEOUT, process: int = 0, on_push: bool = False, **terms: Any
    ) -> Caller:
        """*terms*: what is to be another in its `Terms`."""
        # One that nobody keeps is collected, and so leaves the line.
        self.present.append(Caller(self.all[process], names or ("a",), timeout, on_push=on_push, **terms))
        return self.present[-1]

    def ask(self, name: str = "a", timeout: float = TIMEOUT, process: int = 0, **terms: Any) -> Caller:
        """One that comes, and is stopped when it asks the service."""
        self.present.append(Caller(self.all[process], (name,), timeout, calls=False, **terms))
        return self.present[-1]

    def keep(self, process: int = 0) -> None:
        """A round of the keeper."""
        steps = self.all[process].engine.maintenance.tick()
        answer = None
        with suppress(StopIteration):
            while True:
                step = steps.send(answer)
                assert isinstance(step, Call)
                answer = step.function(*step.arguments)

    def serve(self, callers: list[Caller], seconds: float) -> None:
        """Each of *callers* holds the lock for so long, one after the other."""
        for caller in callers:
            caller.go()
            assert caller.grant is not None
            self.now += seconds
            caller.leave()

    def slow(self, seconds: float, name: str = "a", count: int = 40) -> None:
        """Let a process know a name as one that is held for so long."""
        self.serve([self.come(name, timeout=math.inf) for _ in range(count)], seconds)


UNCAPPED = {"ttl": 1000.0, "max_hold": math.inf, "max_waiters": None, "max_waiters_total": None}


class Rush(Simulation):
    """Buyers of one product who come again and again, on several processes, while it is held for a second."""

    def __init__(self, processes: int, until: float = 60.0) -> None:
        super().__init__(7, processes=processes, callers=0, settings={**UNCAPPED, "ttl": 30.0})
        self.until = until
        self.admitted = self.in_vain = self.sold = 0
        for number in range(processes * 16):
            process = self.all[number % processes]
            self.start(self.buyer(process), process)
        assert self.run(10_000_000) == []

    def buyer(self, process: Process) -> Commands[None]:
        while self.now < self.until:
            asked = self.now
            late = asked > TIMEOUT
            try:
                grant = yield from process.engine.acquire(
                    "a", "a", SimulatedParker(), TIMEOUT, Terms(30.0, math.inf)
                )
            except TooManyWaiters:
                yield Park(SimulatedParker(), 0.25)
                continue
            self.admitted += late
            if grant is None:
                self.in_vain += late
                continue
            self.sold += 1
            yield Park(SimulatedParker(), 1.0)
            yield from grant._release()


# -- readers and permits ----------------------------------------------------------------------------


Owners = Callable[[int | None], None]


@pytest.fixture
def come_as(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """Each caller is a thread of its own, but those that come after ``come_as(number)``."""
    honest = simulation.current_owner

    def come_as(number: int | None) -> None:
        owner = honest if number is None else lambda: (number, None)
        monkeypatch.setattr(simulation, "current_owner", owner)

    return come_as


@pytest.fixture
def scene() -> Scene:
    return Scene(processes=3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes of the requests that were sent."""
    sent: list[str] = []
    honest = MemoryBackend.request

    def request(self: MemoryBackend, ask: Any, deadline: float = math.inf) -> Any:
        sent.append(ask.mode)
        return honest(self, ask, deadline)

    monkeypatch.setattr(MemoryBackend, "request", request)
    return sent


def granted(caller: Caller) -> NameGrant:
    caller.go()
    assert isinstance(caller.grant, NameGrant)
    return caller.grant


def queues(scene: Scene, process: int = 0) -> Any:
    return scene.all[process].engine.queues


# -- crowds -----------------------------------------------------------------------------------------


#: Threads of one process. A request that gets none stands in the server's own queue.
THREADS = 16
#: Seconds that a thread is busy with a refusal.
REFUSING = 0.001


def quick(now: float) -> float:
    return 0.005


@dataclass
class Crowd(Simulation):
    """*rate* callers a second, all for one name, for so many *seconds*. Events happen in the order of time.

    *hold*: how long a grant of a given moment holds it, seconds. *away*: from when until when
    the lock service does not answer.
    """

    callers: int = 0
    settings: dict[str, Any] = field(default_factory=UNCAPPED.copy)
    rate: float = 60.0
    seconds: float = 40.0
    hold: Callable[[float], float] = quick
    away: tuple[float, float] = (math.inf, math.inf)

    def __post_init__(self) -> None:
        #: When they came: those served while others came, those refused, and those that waited in vain.
        self.served, self.refused, self.in_vain = list[float](), list[float](), list[float]()
        #: When the lock was granted.
        self.granted = list[float]()
        self._events = list[tuple[float, int, Task]]()
        self._count = itertools.count()
        super().__post_init__()
        for process in self.all:
            queue, idle = deque[float](), deque[SimulatedParker]()
            for _ in range(THREADS):
                self.start(self._thread(process, queue, idle), process)
            self.start(self._door(process, queue, idle), process)
        while self._events and self.now < self.seconds + 4 * TIMEOUT:
            self._next()

    def _door(self, process: Process, queue: deque[float], idle: deque[SimulatedParker]) -> Commands[None]:
        gap = self.processes / self.rate
        yield Park(SimulatedParker(), gap * (process.number + 1) / self.processes)
        while self.now < self.seconds:
            queue.append(self.now)
            if idle:
                idle.popleft().wake()
            yield Park(SimulatedParker(), gap * self.random.uniform(0.5, 1.5))

    def _thread(self, process: Process, queue: deque[float], idle: deque[SimulatedParker]) -> Commands[None]:
        while True:
            while not queue:
                parker = SimulatedParker()
                idle.append(parker)
                yield Park(parker, math.inf)
            queue.popleft()
            asked = self.now
            try:
                grant = yield from process.engine.acquire(
                    "a", "a", SimulatedParker(), TIMEOUT, process.engine.options
                )
            except TooManyWaiters:
                self.refused.append(asked)
                yield Park(SimulatedParker(), REFUSING)
                continue
            if grant is None:
                self.in_vain.append(asked)
                continue
            if self.now < self.seconds:
                self.served.append(asked)
                self.granted.append(self.now)
            yield Park(SimulatedParker(), self.hold(self.now))
            yield from grant._release()

    # -- the order of events ---------------------------------------------------------------------

    def start(self, steps: Generator[Call | Park, Any, Any], process: Process, forever: bool = False) -> None:
        task = Task(steps, process, forever)
        self.resume(task, lambda: next(steps))

    def resume(self, task: Task, go: Callable[[], Call | Park]) -> None:
        try:
            step = task.step = go()
        except StopIteration:
            return
        if isinstance(step, Call):
            # What is asked while the service is away is answered when it is back.
            self._at(self.away[1] if self.away[0] <= self.now < self.away[1] else self.now, task)
        elif step.parker.open:
            self._at(self.now, task)
        else:
            step.parker.heard = lambda: self._at(self.now, task)
            self._at(self.now + step.timeout, task)

    def _at(self, when: float, task: Task) -> None:
        task.until = when
        if when < math.inf:
            heapq.heappush(self._events, (when, next(self._count), task))

    def _next(self) -> None:
        when, _, task = heapq.heappop(self._events)
        if when != task.until:
            return  # It was woken before that.
        self.now, task.until, step, answer = when, math.inf, task.step, None
        if isinstance(step, Call):
            answer = step.function(*step.arguments)
        else:
            step.parker.open, step.parker.heard = False, lambda: None
        self.resume(task, lambda: task.steps.send(answer))
