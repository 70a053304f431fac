"""Callers who come at a given rate to the threads of several processes, in time that it makes up."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from distlock.engine.commands import Call, Commands, Park
from distlock.errors import TooManyWaiters
from tests.engine.scene import TIMEOUT, UNCAPPED
from tests.engine.simulation import Process, SimulatedParker, Simulation, Task

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
