"""Every order of steps of a few callers, and one misfortune anywhere: a search through all states.

A state is reached by the actions that lead there, played anew each time, for generators can't be copied. Two
states are one if all that the callers, the engines and the lock service remember is the same."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from distlock.backends.base import EXCLUSIVE, READ, Mode
from distlock.engine.hold import TURN, Hold
from distlock.engine.sans_io import Call, Park
from distlock.engine.wait_queue import WaitQueue
from distlock.errors import BackendUnavailable, LockLost, NotHeld
from tests.engine.sharing import Sharing
from tests.engine.simulation import Cancelled, Process, SimulatedParker, Task

Commands = Generator[Call | Park, Any, Any]
#: What a caller does: reads, writes, or writes and goes on reading.
READS, WRITES, WRITES_AND_READS = "reads", "writes", "writes, then reads"


class World(Sharing):
    """Some processes with callers of one key. *wanted*: what each caller of each process does."""

    def __init__(self, wanted: list[list[str]]) -> None:
        super().__init__(0, processes=len(wanted), callers=0)
        self.wanted = wanted
        self.inside: dict[int, Mode] = {}
        self.misfortunes = 0
        self.callers: list[Task] = []
        self.parkers: list[SimulatedParker] = []
        for process, several in zip(self.all, wanted, strict=True):
            for what in several:
                number = len(self.parkers)
                self.parkers.append(SimulatedParker())
                steps = self.visit(process, number, what)
                before = len(self.tasks)
                self.start(steps, process)
                self.callers.append(self.tasks[before])

    def visit(self, process: Process, number: int, what: str) -> Commands:
        engine, mode = process.engine, READ if what == READS else EXCLUSIVE
        try:
            terms = replace(engine.options, mode=mode)
            grant = yield from engine.acquire("a", "a", self.parkers[number], math.inf, terms)
        except BackendUnavailable:
            return
        try:
            self.enter(number, mode)
            yield Park(SimulatedParker(), 0.0)
            if what == WRITES_AND_READS:
                # The lock service lets others read before we hear of it.
                self.inside[number] = READ
                try:
                    yield from grant._downgrade()
                    yield Park(SimulatedParker(), 0.0)
                except (BackendUnavailable, LockLost, NotHeld):
                    pass
        except Cancelled as stop:
            del self.inside[number]
            grant._abandon(stop)
            raise
        del self.inside[number]
        yield from grant._release()

    def enter(self, number: int, mode: Mode) -> None:
        if (mode == EXCLUSIVE and self.inside) or EXCLUSIVE in self.inside.values():
            self.wrong.append(f"{number} was let in to {mode}, while {self.inside} were inside.")
        self.inside[number] = mode

    # -- what can happen next --------------------------------------------------------------------

    def actions(self, misfortunes: int) -> Iterable[tuple[str, int]]:
        for number, task in enumerate(self.tasks_in_order()):
            if task in self.tasks and self._ready(task):
                yield "go", number
        if self.misfortunes >= misfortunes:
            return
        for number, task in enumerate(self.callers):
            if task not in self.tasks or task.process.dead:
                continue
            yield "cancel", number
            if isinstance(task.step, Call):
                yield "lose the reply", number
        for number, process in enumerate(self.all):
            if not process.dead:
                yield "kill", number
        yield "let a turn pass", 0

    def act(self, what: str, number: int) -> None:
        if what == "wait":
            if not self._advance():
                self.wrong.append("Nobody goes on, and nobody ever will.")
            return
        self.misfortunes += what != "go"
        task = self.tasks_in_order()[number]
        if what == "go":
            self._play(task)
        elif what == "let a turn pass":
            self.now += TURN
        elif what == "kill":
            process = self.all[number]
            process.dead, process.backend._sink = True, None
            for caller, one in enumerate(self.callers):
                if one.process is process:
                    self.inside.pop(caller, None)
        elif what == "cancel":
            task = self.callers[number]
            self.resume(task, lambda: task.steps.throw(Cancelled()))
        else:
            task = self.callers[number]
            assert isinstance(task.step, Call)
            task.step.over = True
            task.step.function(*task.step.arguments)
            self.resume(task, lambda: task.steps.throw(BackendUnavailable("the reply was lost")))

    def tasks_in_order(self) -> list[Task]:
        return [*self.callers, *self.keepers]

    @property
    def keepers(self) -> list[Task]:
        if not hasattr(self, "_keepers"):
            self._keepers = [task for task in self.tasks if task.forever]
        return self._keepers

    def is_over(self) -> bool:
        return not any(task in self.tasks and not task.process.dead for task in self.callers)

    def is_stuck(self) -> bool:
        """Whether time has to pass."""
        return not any(task in self.tasks and self._ready(task) for task in self.tasks_in_order())

    # -- which states are one --------------------------------------------------------------------

    def state(self) -> str:
        """The same for processes that want the same, whichever of them does what."""
        orders = itertools.permutations(range(len(self.all)))
        return min(self._seen_by(order) for order in orders if [self.wanted[n] for n in order] == self.wanted)

    def _seen_by(self, order: tuple[int, ...]) -> str:
        """*order*: of the processes."""
        names: dict[str, int] = {}
        processes = [self.all[number] for number in order]
        tasks = [task for process in processes for task in self.tasks_in_order() if task.process is process]
        of = {id(self.parkers[n]): tasks.index(task) for n, task in enumerate(self.callers)}

        def name(token: str) -> int:
            return names.setdefault(token, len(names))

        def told(hold: Hold) -> object:
            grants = [(of[id(w.parker)], g.released, g.mode) for g in hold.grants if (w := hold.waiter_of(g))]
            marks = (
                hold.others_wait,
                hold.releasing,
                hold.downgrade_request is not None,
                hold.lost is not None,
            )
            late = self.now >= hold.turn_ends
            return name(hold.request.token), hold.request.mode, sorted(grants, key=str), marks, late

        inside = sorted((of[id(self.parkers[n])], mode) for n, mode in self.inside.items())
        parts: list[object] = [round(self.now, 3), self.misfortunes, inside]
        for task in tasks:
            is_open = isinstance(task.step, Park) and task.step.parker.open  # type: ignore[attr-defined]
            parts.append((task in self.tasks and _where(task.steps), is_open, task.process.dead))
        for process in processes:
            engine = process.engine
            for queue in engine.queues.by_key.values():
                line = [(of[id(w.parker)], w.leads, w.waited) for w in queue.waiters]
                request = queue.request and (name(queue.request.token), queue.request.mode)
                holds = [told(hold) for hold in queue.holds]
                parts.append((line, request, queue.busy, queue.handed_off is not None, holds))
            parts.append([name(one.request.token) for one in engine.cancellations._pending])
            parts.append(sorted(name(hold.request.token) for hold in engine.renewer.holds))
        for record in self.service.records.values():
            parts.append([(name(o.entry.request.token), o.mode, o.acknowledged) for o in record.holds])
            parts.append([(name(entry.request.token), entry.request.mode) for entry in record.queue])
        return repr(parts)


def _where(steps: Any) -> object:
    """Where each generator of *steps* stands."""
    found = []
    while steps is not None and getattr(steps, "gi_frame", None) is not None:
        found.append((steps.gi_code.co_name, steps.gi_frame.f_lasti))
        steps = steps.gi_yieldfrom
    return found


@dataclass
class Search:
    wanted: list[list[str]]
    misfortunes: int = 0
    #: What was found wrong, with the actions that lead there.
    wrong: list[tuple[object, list[tuple[str, int]]]] = field(default_factory=list)
    states: int = 0
    ends: int = 0

    def run(self, most: float = math.inf, hurry: Callable[[], bool] = lambda: False) -> Search:
        seen: set[object] = set()
        world, here = World(self.wanted), []
        paths: list[list[tuple[str, int]]] = [here]
        while paths and self.states < most and not self.wrong and not hurry():
            path = paths.pop()
            # The latest state is not played anew: what is done next follows it, as often as not.
            if path[: len(here)] != here:
                world, here = World(self.wanted), []
            for action in path[len(here) :]:
                world.act(*action)
            here = path
            if world.wrong:
                self.wrong.append((world.wrong, path))
            if (state := world.state()) in seen:
                continue
            seen.add(state)
            self.states += 1
            if world.is_over():
                self.ends += 1
                world._let_the_dust_settle()
                if world.wrong:
                    self.wrong.append((world.wrong, path))
                continue
            paths += [[*path, action] for action in world.actions(self.misfortunes)]
            if world.is_stuck():
                if not world.misfortunes:
                    self.wrong.append(("Nobody goes on: a wake-up was lost.", path))
                paths.append([*path, ("wait", 0)])
        return self


# -- the searches -----------------------------------------------------------------------------------


SCENES = {
    "readers and writers": [[READS, WRITES], [READS, WRITES]],
    "a downgrade": [[WRITES_AND_READS, READS], [READS, WRITES]],
}


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """It would be for each of many thousand plays."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def protocols_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 lists what a protocol asks for anew each time, and each play makes engines."""
    members = typing._get_protocol_attrs  # type: ignore[attr-defined]
    monkeypatch.setattr(typing, "_get_protocol_attrs", functools.cache(members))


@pytest.mark.parametrize("wanted", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("misfortunes", [0, 1])
def test_whatever_the_order_writers_are_alone_and_everybody_is_served(
    wanted: list[list[str]], misfortunes: int
) -> None:
    """A misfortune: a reply is lost, a caller cancelled, a process killed, or a turn passes."""
    search = Search(wanted, misfortunes).run()
    print(f"{search.states} states, {search.ends} of them ends: {wanted}, {misfortunes} misfortunes")
    assert search.wrong == []
    assert search.states > (3000 if misfortunes else 300)


def let_readers_in_beside_a_writer(patch: pytest.MonkeyPatch) -> None:
    def let_readers_in(self: WaitQueue, hold: Any, now: float) -> None:
        honest(self, hold, now)
        for waiter in list(self.waiters):
            self._admit_reader(hold, waiter, now)
            self.leave(waiter)
            waiter.parker.wake()

    honest = WaitQueue._let_readers_in
    patch.setattr(WaitQueue, "_let_readers_in", let_readers_in)


def the_next_in_line_is_not_woken(patch: pytest.MonkeyPatch) -> None:
    def elect(self: WaitQueue) -> None:
        if not self.busy and self.waiters:
            self.waiters[0].leads = True
        else:
            honest(self)

    honest = WaitQueue.elect
    patch.setattr(WaitQueue, "elect", elect)


def a_cancelled_reader_keeps_its_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "drop", lambda self, grant: grant.end())


@pytest.mark.parametrize(
    "bug", [let_readers_in_beside_a_writer, the_next_in_line_is_not_woken, a_cancelled_reader_keeps_its_hold]
)
def test_the_search_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, bug: Any) -> None:
    bug(monkeypatch)
    assert Search(SCENES["readers and writers"], 1).run().wrong
