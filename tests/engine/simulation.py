"""A scheduler that plays the engine's steps in an order drawn from a seed, in time that it makes up.

Processes share one `MemoryService`. Between two steps anything may happen: another task's step, time
passing, a reply lost, a task cancelled, a process stopped for a while or killed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from distlock import Grant
from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import WINDOW, MemoryService
from distlock.engine.engine import Engine
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Call, Park
from distlock.errors import BackendUnavailable, TooManyWaiters
from distlock.testing.history import HistoryRecord


class Cancelled(BaseException):
    """What the simulation throws into a task, as asyncio throws its CancelledError."""


_owners = itertools.count()


def current_owner() -> Any:
    """Return the owner of the next parker: a thread or task of its own."""
    return next(_owners), None


class SimulatedParker:
    may_stall = True

    def __init__(self) -> None:
        self.owner = current_owner()
        self.open = False
        #: Called when it is woken.
        self.heard: Callable[[], None] = lambda: None

    def wake(self) -> None:
        self.open = True
        self.heard()

    def alive(self) -> bool:
        return True


@dataclass(eq=False)
class Task:
    steps: Generator[Call | Park, Any, Any]
    process: Process
    forever: bool = False
    step: Call | Park | None = None
    until: float = 0.0
    #: Its event loop stands still until then.
    stalled_until: float = 0.0
    #: What its call has come to, where it was carried out and the loop has not heard of it.
    came_to: tuple[Any, BaseException | None] | None = None


class PushingBackend(MemoryBackend):
    """Its pushes take their time: one may come after a newer poll, long after it was sent, or never."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        super().__init__("memory://", service=simulation.service)
        self._simulation = simulation
        self._process = process
        #: When the latest poll of each key was sent.
        self._polls: dict[str, float] = {}

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        self._polls[request.key] = self._simulation.now
        return super().request(request, deadline)

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        takes = self._simulation.random.choice([0.0, 0.0, 0.001, 0.1, 0.3, 1.0, math.inf])
        push = self._push(takes, key, token, number, sent)
        self._simulation.start(push, self._process, forever=True)

    def _push(
        self, takes: float, key: str, token: str, number: int, sent: float
    ) -> Generator[Call | Park, Any, None]:
        yield Park(SimulatedParker(), takes)
        if self._polls.get(key) == sent and self._simulation.now < sent + WINDOW / 2:
            super().handed_off(key, token, number, sent)
        else:
            self.notified(key)


class PostingBackend(MemoryBackend):
    """What it posts is carried out before its next call for that key, or when the keeper asks."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__("memory://", service=simulation.service)
        self._simulation = simulation
        self._posted: list[tuple[LockRequest, Callable[[bool | None], None]]] = []

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        self._posted.append((request, told))

    def settle(self, deadline: float = math.inf) -> bool:
        self._carry_out(lambda request: True)
        return not self._posted

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        self._carry_out(lambda posted: posted.key == request.key)
        return super().request(request, deadline)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        self._carry_out(lambda posted: posted.key == request.key)
        return super().cancel(request, deadline)

    def _carry_out(self, which: Callable[[LockRequest], bool]) -> None:
        due = [(request, told) for request, told in self._posted if which(request)]
        self._posted = [(request, told) for request, told in self._posted if not which(request)]
        for request, told in due:
            if self._simulation.random.random() < self._simulation.faults.lost_answer:
                told(None)
            elif not self.service.release(request):
                told(False)


@dataclass
class Faults:
    """How likely, per step, something goes wrong."""

    lost_request: float = 0.0
    lost_reply: float = 0.0
    cancel: float = 0.0
    stop: float = 0.0
    kill: float = 0.0
    #: An event loop stands still, while other threads of its process go on.
    stall: float = 0.0
    #: Of a release that was sent and not awaited nothing is known.
    lost_answer: float = 0.0
    #: A database is ahead of a grant.
    ahead: float = 0.0


class Process:
    def __init__(self, simulation: Simulation, number: int, **settings: Any) -> None:
        self.simulation = simulation
        self.number = number
        self.stopped_until = 0.0
        self.dead = False
        if simulation.pushes:
            self.backend: MemoryBackend = PushingBackend(simulation, self)
        elif simulation.posts:
            self.backend = PostingBackend(simulation)
        else:
            self.backend = MemoryBackend("memory://", service=simulation.service)
        self.engine = Engine(
            self.backend, **{**SETTINGS, **settings}, now=lambda: simulation.now, threads=False
        )
        self.maintenance_parker = SimulatedParker()
        self.engine.maintenance.parker = self.maintenance_parker  # type: ignore[assignment]
        simulation.start(self._keep(), self, forever=True)

    def _keep(self) -> Generator[Call | Park, Any, None]:
        while True:
            pause = yield from self.engine.maintenance.tick()
            yield Park(self.maintenance_parker, pause)

    def shop(self, caller: str, rounds: int) -> Generator[Call | Park, Any, None]:
        """A caller that takes a lock again and again, with all the patience there is, or less."""
        draw = self.simulation.random
        terms = replace(self.engine.options, on_push=self.simulation.pushes)
        for _ in range(rounds):
            parker = SimulatedParker()
            parker.may_stall = not terms.on_push
            asked = self.simulation.now
            timeout = draw.choice([0.0, 0.01, 0.3, 5.0, math.inf, math.inf])
            name = draw.choice(NAMES)
            try:
                grant = yield from self.engine.acquire(name, name, parker, timeout, terms)
            except BackendUnavailable:
                continue
            except TooManyWaiters as refusal:
                if timeout == math.inf:
                    self.simulation.wrong.append(
                        f"{caller} was refused, with no limit to its patience: {refusal}"
                    )
                continue
            if grant is None:
                if timeout == math.inf:
                    self.simulation.wrong.append(f"{caller} got nothing, with no limit to its patience.")
                continue
            granted = self.simulation.now
            try:
                if draw.random() < self.simulation.faults.ahead:
                    yield from self._lift(grant)
                yield Park(SimulatedParker(), draw.choice([0.0, 0.001, 0.02, 0.2]))
                if terms.on_push:
                    yield from self._last(grant, draw.choice([0.0, 0.0, 1.0, 5.0]))
            except Cancelled as stop:
                self.simulation.note(name, caller, asked, granted, grant)
                grant._abandon(stop)
                raise
            self.simulation.note(name, caller, asked, granted, grant)
            yield from grant._release()

    def _last(self, grant: NameGrant, seconds: float) -> Generator[Call | Park, Any, None]:
        """A body that checks its lock, and goes on for a while."""
        self.simulation.begun_on_push += not grant._hold.acknowledged
        with suppress(BackendUnavailable):
            yield from self.engine.hold_calls.acknowledge(grant._hold)
        if not grant.lost:
            yield Park(SimulatedParker(), seconds)

    def _lift(self, grant: NameGrant) -> Generator[Call | Park, Any, None]:
        number = grant.fence.number + self.simulation.random.choice([0, 1, 63, 64, 1000])
        with suppress(BackendUnavailable):
            if (
                yield from self.engine.hold_calls.raise_fence(grant, number)
            ) and grant.fence.number <= number:
                self.simulation.wrong.append(f"{grant} was lifted, and is not above {number}.")


NAMES = ["a", "b"]
SETTINGS: dict[str, Any] = {
    "ttl": 3.0,
    "max_hold": 60.0,
    "max_waiters": 100,
    "max_waiters_total": 100,
    "epoch": 1,
}


@dataclass
class Simulation:
    seed: int
    processes: int = 3
    callers: int = 4
    rounds: int = 6
    faults: Faults = field(default_factory=Faults)
    settings: dict[str, Any] = field(default_factory=dict)
    #: Whether releases are sent, and their answers not awaited.
    posts: bool = False
    #: Whether callers begin on a push, which may come at any time.
    pushes: bool = False
    #: How many have.
    begun_on_push: int = 0
    service: MemoryService = field(init=False)

    #: What its processes are.
    kind: ClassVar[type[Process]] = Process

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 0.0
        self.service = MemoryService(now=lambda: self.now)
        self.tasks: list[Task] = []
        self.history: list[HistoryRecord] = []
        self.wrong: list[str] = []
        self.all = [self.kind(self, number, **self.settings) for number in range(self.processes)]
        for process in self.all:
            for caller in range(self.callers):
                self.start(process.shop(f"{process.number}.{caller}", self.rounds), process)

    def start(self, steps: Generator[Call | Park, Any, Any], process: Process, forever: bool = False) -> None:
        task = Task(steps, process, forever)
        self.tasks.append(task)
        self.resume(task, lambda: next(steps))

    def note(self, name: str, caller: str, asked: float, granted: float, grant: Grant) -> None:
        # A grant that was lost counts until its deadline: what its holder does later is not the lock's.
        released = min(self.now, grant._hold.lease_ends)
        self.history.append(HistoryRecord(name, caller, asked, granted, released, grant.fence))

    def run(self, limit: int = 200_000) -> list[str]:
        """Play until all callers are done. Returns what was wrong, besides the history."""
        for _ in range(limit):
            self._misfortune()
            if not any(not task.forever and not task.process.dead for task in self.tasks):
                break
            ready = [task for task in self.tasks if self._ready(task)]
            if ready:
                self._play(self.random.choice(ready))
                if self.random.random() < 0.05:
                    self.now += self.random.choice([0.001, 0.02, 0.3])
            elif not self._advance():
                self.wrong.append("Nobody can go on, and nobody ever will: a wake-up was lost.")
                return self.wrong
        else:
            self.wrong.append(f"Not done after {limit} steps.")
        self._let_the_dust_settle()
        return self.wrong

    def _let_the_dust_settle(self) -> None:
        """What dead processes left ends by itself, and the keepers of the living clear up."""
        self.faults = Faults()
        for _ in range(2000):
            ready = [task for task in self.tasks if self._ready(task)]
            if ready:
                self._play(self.random.choice(ready))
            elif not self._advance():
                break
        for process in self.all:
            if not process.dead and (process.engine.renewer.holds or process.engine.cancellations):
                self.wrong.append(f"The keeper of process {process.number} still keeps something.")
        # A dead process leaves its lease, a place in the queue that was never given up at most a window.
        self.now += 100.0 if any(process.dead for process in self.all) else WINDOW
        held = [key for key in list(self.service.records) if self.service.locked(key)]
        if held:
            self.wrong.append(f"Still held when everybody had gone: {held}.")
        for process in self.all:
            if not process.dead and (process.engine.queues.by_key or process.engine.queues.waiting):
                self.wrong.append(
                    f"Process {process.number} still has wait queues: {list(process.engine.queues.by_key)}."
                )

    def _stall(self, task: Task) -> None:
        if task.forever:
            return
        task.stalled_until = self.now + self.random.choice([0.5, 3.0, 8.0, 20.0])
        if isinstance(task.step, Call) and task.came_to is None:
            # Calls are carried out in other threads.
            task.came_to = self._carry_out(task.step)

    # -- one step --------------------------------------------------------------------------------

    def _ready(self, task: Task) -> bool:
        if task.process.dead or max(task.process.stopped_until, task.stalled_until) > self.now:
            return False
        step = task.step
        return isinstance(step, Call) or (step is not None and (step.parker.open or task.until <= self.now))  # type: ignore[attr-defined]

    def _advance(self) -> bool:
        times = [
            max(task.until, task.process.stopped_until, task.stalled_until)
            for task in self.tasks
            if isinstance(task.step, Park) and not task.process.dead
        ]
        times += [task.stalled_until for task in self.tasks if not task.process.dead]
        times += [process.stopped_until for process in self.all if process.stopped_until > self.now]
        later = [time for time in times if time > self.now and time != math.inf]
        if later:
            self.now = min(later)
        return bool(later)

    def _play(self, task: Task) -> None:
        step = task.step
        assert step is not None
        if isinstance(step, Park):
            step.parker.open = False  # type: ignore[attr-defined]
            self.resume(task, lambda: task.steps.send(None))
            return
        answer, error = task.came_to or self._carry_out(step)
        task.came_to = None
        if error is not None:
            raised = error
            self.resume(task, lambda: task.steps.throw(raised))
        else:
            self.resume(task, lambda: task.steps.send(answer))

    def _carry_out(self, step: Call) -> tuple[Any, BaseException | None]:
        step.over = True
        draw = self.random.random
        error: BaseException | None = None
        answer = None
        if draw() < self.faults.lost_request:
            error = BackendUnavailable("the request was lost (a planted fault)")
        else:
            answer = step.function(*step.arguments)
            if draw() < self.faults.lost_reply:
                error = BackendUnavailable("the reply was lost (a planted fault)")
        return answer, error

    def resume(self, task: Task, go: Callable[[], Call | Park]) -> None:
        try:
            task.step = go()
        except (StopIteration, Cancelled):
            self.tasks.remove(task)
            return
        if isinstance(task.step, Park):
            task.until = self.now + task.step.timeout

    def _misfortune(self) -> None:
        draw = self.random
        if draw.random() < self.faults.cancel:
            waiting = [task for task in self.tasks if self._ready(task) or isinstance(task.step, Park)]
            waiting = [task for task in waiting if not task.forever and not task.process.dead]
            if waiting:
                task = draw.choice(waiting)
                task.came_to = None
                self.resume(task, lambda: task.steps.throw(Cancelled()))
        if draw.random() < self.faults.stall:
            self._stall(draw.choice(self.tasks))
        if draw.random() < self.faults.stop:
            draw.choice(self.all).stopped_until = self.now + draw.choice([0.2, 1.0, 6.0])
        if draw.random() < self.faults.kill and sum(not process.dead for process in self.all) > 1:
            victim = draw.choice(self.all)
            victim.dead = True
            victim.backend._sink = None
