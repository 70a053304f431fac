"""Processes, callers and rushes in time that the test makes up."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distlock import Grant
from distlock.engine.commands import Call, Commands, Park
from distlock.engine.drivers import run
from distlock.errors import TooManyWaiters
from distlock.locks.engine_namespace import EngineNamespace
from distlock.terms import Terms
from tests.engine.simulation import Process, SimulatedParker, Simulation

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
