"""Callers that read, write, turn from writing to reading, and hold permits, for the scheduler to play."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distlock import Fence
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Call, Park
from distlock.errors import BackendUnavailable, LockLost, NotHeld, TooManyWaiters
from distlock.terms import Terms
from distlock.testing.history import HistoryRecord
from tests.engine import simulation
from tests.engine.simulation import NAMES, Cancelled, Process, SimulatedParker, Simulation, Task

Commands = Generator[Call | Park, Any, Any]
LIMIT = 3


class SharingProcess(Process):
    simulation: Sharing

    def shop(self, caller: str, rounds: int) -> Commands:
        """A caller that takes locks in all modes, again and again."""
        draw = self.simulation.random
        for _ in range(rounds):
            mode = draw.choice(self.simulation.modes)
            terms = replace(self.engine.options, mode=mode)
            name = draw.choice(NAMES)
            if mode == PERMIT:
                name += "/semaphore"
                # During a deployment the limits differ.
                limit = draw.choice(self.simulation.limits)
                terms = replace(terms, limit=limit, permits=draw.choice([1, 1, 2]))
            timeout = draw.choice(self.simulation.timeouts)
            asked = self.simulation.now
            watch = Watch(self, name, terms)
            self.simulation.watches.append(watch)
            watch.look()
            try:
                grant = yield from self.engine.acquire(name, name, SimulatedParker(), timeout, terms)
            except (BackendUnavailable, TooManyWaiters):
                continue
            finally:
                self.simulation.watches.remove(watch)
            if grant is None and timeout == 0.0 and mode != EXCLUSIVE:
                self.simulation.refused += 1
                if not watch.was_busy and self.simulation.now < asked + 1.0:
                    self.simulation.refused_in_vain.append(f"{caller} {mode} {name}")
            if grant is None:
                if timeout == math.inf:
                    self.simulation.wrong.append(f"{caller} got nothing, with no limit to its patience.")
                continue
            body = Body(self, caller, name, asked, grant)
            try:
                yield Park(SimulatedParker(), draw.choice([0.0, 0.001, 0.02, 0.2]))
                if mode != PERMIT:
                    yield from body.go_on()
            except Cancelled as stop:
                body.end()
                for one in body.grants:
                    one._abandon(stop)
                raise
            body.end()
            for one in draw.sample(body.grants, len(body.grants)):
                yield from one._release()


class Watch:
    """Whether the lock service would have answered a caller with `Busy` at any moment since it came."""

    def __init__(self, process: SharingProcess, name: str, terms: Terms) -> None:
        self._process = process
        self._ask = LockRequest(name, "", terms.ttl, 1, False, terms.mode, terms.limit, terms.permits)
        self.was_busy = False

    def look(self) -> None:
        queue = self._process.engine.queues.by_key.get(self._ask.key)
        record = self._process.simulation.service.records.get(self._ask.key)
        if queue is not None and queue.busy:
            self.was_busy = True
        if record is not None:
            # What was handed off, and is not heard of yet, is as good as a place in the queue.
            handed = any(not hold.acknowledged for hold in record.holds)
            self.was_busy |= bool(record.queue) or handed or not record.has_room(self._ask)


class Body:
    """What one caller does under a grant."""

    def __init__(
        self, process: SharingProcess, caller: str, name: str, asked: float, grant: NameGrant
    ) -> None:
        self._process = process
        self._simulation = process.simulation
        self._caller = caller
        self._name = name
        self._asked = asked
        self._granted = self._simulation.now
        self._mode: Mode = grant.mode
        self.grants = [grant]

    def go_on(self) -> Commands:
        """Read again what it has, and perhaps let others read, too."""
        draw, engine, grant = self._simulation.random, self._process.engine, self.grants[0]
        if draw.random() < 0.3 and not grant.lost:
            again = self._simulation.now
            terms = replace(engine.options, mode=READ)
            inner = yield from engine.acquire(self._name, self._name, SimulatedParker(), math.inf, terms)
            if self._simulation.now > again and not grant.lost:
                self._simulation.wrong.append(f"{self._caller} waited for itself to read {self._name} again.")
            self.grants.append(inner)
            yield Park(SimulatedParker(), draw.choice([0.0, 0.02]))
        if grant.mode == EXCLUSIVE and draw.random() < 0.5:
            # The lock service lets others read before we hear of it.
            self.end()
            self._granted, self._mode = self._simulation.now, READ
            with suppress(BackendUnavailable, LockLost, NotHeld):
                yield from grant._downgrade()
                yield Park(SimulatedParker(), draw.choice([0.0, 0.02, 0.2]))

    def end(self) -> None:
        """Note what it had until now."""
        grant = self.grants[0]
        # A grant that was lost counts until its deadline: what its holder does later is not the lock's.
        released = min(self._simulation.now, grant._hold.lease_ends, grant._max_hold_ends)
        if self._mode == PERMIT:
            self._simulation.permits.append((self._name, grant._options, self._granted, released))
            return
        fence = Fence(*grant.fence)
        self._simulation.history.append(
            HistoryRecord(self._name, self._caller, self._asked, self._granted, released, fence, self._mode)
        )


class Sharing(Simulation):
    kind = SharingProcess

    def __init__(self, seed: int, **more: Any) -> None:
        self.modes: list[Mode] = more.pop("modes", [READ, READ, EXCLUSIVE])
        self.limits: list[int] = more.pop("limits", [LIMIT])
        self.timeouts: list[float] = more.pop("timeouts", [0.0, 0.01, 0.3, 5.0, math.inf, math.inf])
        self.watches: list[Watch] = []
        #: How many that asked once were refused, and those that the lock service would have let in.
        self.refused = 0
        self.refused_in_vain: list[str] = []
        #: Name, terms, from when and until when, of each permit.
        self.permits: list[tuple[str, Any, float, float]] = []
        super().__init__(seed, **more)

    def resume(self, task: Task, go: Callable[[], Call | Park]) -> None:
        # Each task is an owner of its own, though one thread plays them all.
        honest = simulation.current_owner
        simulation.current_owner = lambda: (id(task), None)
        try:
            super().resume(task, go)
            for watch in self.watches:
                watch.look()
        finally:
            simulation.current_owner = honest


def most_out(permits: list[tuple[str, Any, float, float]]) -> dict[str, int]:
    """Of each name, how many permits were out at once, at most."""
    moments: dict[str, list[tuple[float, int]]] = {}
    for name, terms, granted, released in permits:
        moments.setdefault(name, []).extend([(granted, terms.permits), (released, -terms.permits)])
    most = {}
    for name, changes in moments.items():
        out = 0
        # What ends in the moment in which another begins was there before.
        for _, change in sorted(changes):
            out += change
            most[name] = max(most.get(name, 0), out)
    return most
