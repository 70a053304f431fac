"""What can happen in a world without faults: who goes on, what arrives, and what is wrong then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from distlock.backends.base import EXCLUSIVE, PERMIT
from tests.histories.automaton import Automaton, Node, TaskView, Transition
from tests.histories.process import LIMIT, WINDOW, Event, Family, Scene
from tests.histories.services import Model, Push, State
from tests.histories.world import MOST, Action, Least, Proc, Step, World, with_process, with_value


class Actions:
    """What can happen in *scene*, with a lock service of *family*.

    *whole*: whether a call and its answer are one action. *faults*: the kinds that may come.
    """

    def __init__(self, family: Family, scene: Scene, faults: tuple[str, ...], whole: bool = False) -> None:
        self.family, self.scene, self.faults, self.whole = family, scene, frozenset(faults), whole
        self.model = Model(family)
        made: dict[str, Automaton] = {}
        self.automata = [
            made.setdefault(callers, Automaton(family, scene, callers)) for callers in scene.callers
        ]
        self.distinct = list(made.values())
        self._fresh = itertools.count(1000)
        self.timed = any(callers != callers.upper() for callers in scene.callers)
        self.least = Least(scene.callers, self.automata)

    def first(self, faults: int) -> World:
        procs = [Proc("lives", 0, (), (None,) * len(one.nodes[0].tasks)) for one in self.automata]
        return World(State(), tuple(procs), faults)

    def node(self, world: World, number: int) -> Node:
        return self.automata[number].nodes[world.procs[number].node]

    # -- what can happen -------------------------------------------------------------------------

    def without_faults(self, world: World) -> list[Step]:
        """Return all that can happen next, but for another fault."""
        found = list(self._usual(world))
        if not found:
            found += self._passes(world)
        found += [
            Step(("resume", number, 0), with_process(world, number, proc._replace(status="lives")))
            for number, proc in enumerate(world.procs)
            if proc.status == "stands still"
        ]
        return found

    def _usual(self, world: World) -> Iterator[Step]:
        for number, proc in enumerate(world.procs):
            if proc.status == "dead":
                continue
            if proc.late:
                yield self._arrives(world, number)
            if proc.posted:
                yield self.release_arrives(world, number)
            if proc.status != "lives":
                yield from self._carried_out(world, number)
                continue
            if proc.inbox:
                yield self._delivered(world, number)
            for task, view in enumerate(self.node(world, number).tasks):
                if view.at == "park" and view.ready:
                    yield self.local(world, ("go", number, task), ("go", task))
                elif view.at == "call" and proc.answers[task] is not None:
                    yield self._hears(world, number, task)
            yield from self._carried_out(world, number)

    def _carried_out(self, world: World, number: int) -> Iterator[Step]:
        proc = world.procs[number]
        for task, view in enumerate(self.node(world, number).tasks):
            if view.at == "call" and proc.answers[task] is None:
                after, tasks = self.served(world, number, task)
                if not self.whole or proc.status != "lives":
                    yield Step(("carry out", number, task), after, tasks=tasks)
                else:
                    place = tasks.index(task)
                    step = self._hears(after, number, place)
                    moved = tuple(tasks[one] for one in step.tasks)
                    yield step._replace(action=("call", number, task), tasks=moved)

    def _passes(self, world: World) -> Iterator[Step]:
        """Let time pass until somebody goes on by itself, because nothing else can happen."""
        moments = []
        hindered = any(proc.status != "lives" for proc in world.procs)
        for number, proc in enumerate(world.procs):
            if proc.status == "lives":
                moments += [one.until for one in self.node(world, number).tasks if one.at == "park"]
        if hindered:
            moments += [one[5] for one in world.service.holds]
        later = [one for one in moments if 0 < one < math.inf]
        if later:
            pause = min(later)
            wrong = self._waits_in_vain(world)
            yield self.after(world, pause, ("time", 0, 0), wrong)

    def after(self, world: World, pause: float, action: Action, wrong: str = "") -> Step:
        for number, proc in enumerate(world.procs):
            if proc.status != "dead":
                step = self.local(world, action, ("tick", pause), number)
                world, wrong = step.world, wrong or step.wrong
                if self.family.hands_off:
                    proc = world.procs[number]
                    inbox = tuple(
                        (*one[:4], min(WINDOW, round(one[4] + pause, 6)), one[5]) for one in proc.inbox
                    )
                    world = with_process(world, number, proc._replace(inbox=inbox))
        return Step(action, world._replace(service=world.service.passes(pause, self.family)), wrong)

    def _waits_in_vain(self, world: World) -> str:
        """Return who waits while the lock is free, although no fault excuses that; "": nobody does."""
        if world.service.holds or not self.family.fair or world.fault in _EXCUSES:
            return ""
        for number, proc in enumerate(world.procs):
            if proc.status == "lives" and any(_waits(view) for view in self.node(world, number).tasks):
                return f"a caller of process {number} waits while the lock is free"
        return ""

    # -- single actions --------------------------------------------------------------------------

    def local(self, world: World, action: Action, event: Event, number: int | None = None) -> Step:
        """Play *event*, which brings no names, to the process of *action*."""
        return self.played(world, action, event, (), action[1] if number is None else number)

    def played(
        self, world: World, action: Action, event: Event, brought: tuple[int, ...], number: int
    ) -> Step:
        proc, automaton = world.procs[number], self.automata[number]
        found: Transition = automaton.step(proc.node, event)
        node = automaton.nodes[found.node]
        names = tuple(
            MOST * next(self._fresh) + number
            if old is None
            else proc.names[old]
            if old >= 0
            else brought[-1 - old]
            for old in found.names
        )
        played = event[1] if event[0] in _OF_A_TASK else -1
        answers = tuple(None if old == played else proc.answers[old] for old in found.tasks)
        after = proc._replace(node=found.node, names=names, answers=answers)
        service = world.service
        if self.family.hands_off and played >= 0:
            task = node.tasks[found.tasks.index(played)]
            if task.at == "call" and task.call == "request":
                # From now on a push that answers an earlier poll is a hint.
                after = after._replace(inbox=tuple((*one[:5], False) for one in after.inbox))
                queue = tuple((*one[:5], one[5] and one[0] % MOST != number) for one in service.queue)
                service = State(service.holds, queue, service.last_number)
        world = with_process(world._replace(service=service), number, after)
        top, wrong = self._entered(world, number, automaton.nodes[proc.node], node, found)
        world = world._replace(top=top)
        return Step(action, world, wrong or self._conflict(world), found.tasks)

    def _entered(
        self, world: World, number: int, before: Node, after: Node, found: Transition
    ) -> tuple[tuple[int, int], str]:
        """Return the fence of the latest writer. If a caller has entered with a smaller one, say so."""
        top = world.top
        for place, old in enumerate(found.tasks):
            inside = after.tasks[place].inside
            if inside is None or before.tasks[old].inside is not None or inside[0] == PERMIT:
                continue
            proc = world.procs[number]
            fence = proc.names[inside[2]], inside[3]
            if fence[0] in proc.ended:
                # Its session ended before the answer came, and the next holder may have been quicker.
                continue
            if inside[0] == EXCLUSIVE:
                if fence <= top:
                    return top, f"the fence {fence} comes after {top}"
                top = fence
            elif fence[0] < top[0]:
                return top, f"a reader has the fence {fence} after {top}"
        return top, ""

    def _conflict(self, world: World) -> str:
        inside = [
            (number, *view.inside[:2])
            for number, proc in enumerate(world.procs)
            if proc.status != "dead"
            for view in self.node(world, number).tasks
            if view.inside is not None and proc.names[view.inside[2]] not in proc.ended
        ]
        modes = [mode for _, mode, _ in inside]
        permits = sum(taken for _, mode, taken in inside if mode == PERMIT)
        if (EXCLUSIVE in modes and len(modes) > 1) or permits > LIMIT:
            return f"inside at once: {', '.join(f'process {number} in {mode}' for number, mode, _ in inside)}"
        return ""

    def named(self, world: World, number: int, value: int, is_token: bool) -> int:
        """Return the place of a token or number in the process's node; -1 if it does not know it."""
        node, names = self.node(world, number), world.procs[number].names
        for place, name in enumerate(names):
            if name == value and node.tokens[place] == is_token:
                return place
        return -1

    def about(self, world: World, number: int, task: int) -> tuple[tuple[Any, ...], ...]:
        names = world.procs[number].names
        view = self.node(world, number).tasks[task]
        return tuple((names[one[0]], *one[1:5], names[one[5]] if one[5] >= 0 else -1) for one in view.about)

    def served(self, world: World, number: int, task: int) -> tuple[World, tuple[int, ...]]:
        """Have the lock service carry out the call of a task. Return the world, and the tasks' old places."""
        view = self.node(world, number).tasks[task]
        about = self.about(world, number, task)
        tasks = tuple(range(len(world.procs[number].answers)))
        if view.call == "post":
            proc = world.procs[number]
            proc = proc._replace(
                posted=(*proc.posted, about[0]), answers=with_value(proc.answers, task, ("none",))
            )
            return with_process(world, number, proc), tasks
        while world.procs[number].posted:
            step = self.release_arrives(world, number)
            place = step.tasks.index(task)
            world, task = step.world, place
            tasks = tuple(tasks[old] for old in step.tasks)
        answer: Any = True
        if view.call != "settle":
            world, answer = self._called(world, view.call, about)
        proc = world.procs[number]
        proc = proc._replace(answers=with_value(proc.answers, task, _kept(answer)))
        return with_process(world, number, proc), tasks

    def _called(self, world: World, call: str, about: tuple[Any, ...]) -> tuple[World, Any]:
        service, answer, pushes = self.model.call(world.service, call, about)
        return self.pushed(world._replace(service=service), pushes), answer

    def pushed(self, world: World, pushes: tuple[Push, ...]) -> World:
        for push in pushes:
            number = push[1] % MOST
            proc = world.procs[number]
            if proc.status == "dead":
                continue
            if not self.family.hands_off or push[2] != EXCLUSIVE:
                push = HINT
            if push not in proc.inbox:
                world = with_process(world, number, proc._replace(inbox=(*proc.inbox, push)))
        return world

    def _hears(self, world: World, number: int, task: int) -> Step:
        answer = world.procs[number].answers[task]
        brought: tuple[int, ...] = ()
        event: Any = answer
        if answer[0] == "acquired":
            place = self.named(world, number, answer[1], False)
            brought = (answer[1],)
            event = (answer[0], place, *answer[2:])
        elif answer[0] == "plain":
            event = answer[1]
        elif answer[0] == "none":
            event = None
        return self.played(world, ("hear", number, task), ("hear", task, event), brought, number)

    def _delivered(self, world: World, number: int) -> Step:
        proc = world.procs[number]
        (kind, token, _, first, ago, fresh), rest = proc.inbox[0], proc.inbox[1:]
        world = with_process(world, number, proc._replace(inbox=rest))
        action = ("push", number, 0)
        if kind == "handed_off" and fresh and ago < WINDOW / 2:
            places = [self.named(world, number, token, True), self.named(world, number, first, False)]
            brought = [value for value, place in zip((token, first), places, strict=True) if place < 0]
            if len(brought) == 2:
                places[1] = -2
            return self.played(world, action, ("push", kind, *places, -ago), tuple(brought), number)
        if kind in ("lost", "ended"):
            place = self.named(world, number, token, True)
            if place < 0:
                return Step(action, world, tasks=tuple(range(len(proc.answers))))
            return self.played(world, action, ("push", kind, place, 0, 0.0), (), number)
        what = "missed" if kind == "missed" else "notified"
        return self.played(world, action, ("push", what, 0, 0, 0.0), (), number)

    def release_arrives(self, world: World, number: int, ours: bool | None = True) -> Step:
        """Carry out the first release that was posted. *ours*: None if its answer is lost."""
        proc = world.procs[number]
        about = proc.posted[0]
        world = with_process(world, number, proc._replace(posted=proc.posted[1:]))
        world, answer = self._called(world, "post", (about,))
        place = self.named(world, number, about[0], True)
        event = ("reply", place, answer if ours else None)
        return self.played(world, ("release arrives", number, 0), event, (), number)

    def _arrives(self, world: World, number: int) -> Step:
        proc = world.procs[number]
        (call, about), rest = proc.late[0], proc.late[1:]
        world = with_process(world, number, proc._replace(late=rest))
        world, _ = self._called(world, call, about)
        return Step(("late call arrives", number, 0), world)


#: The faults after which a waiter has to poll before it goes on.
_EXCUSES = {"lost push", "stop"}
#: The events of one task.
_OF_A_TASK = {"go", "hear", "fail", "throw", "close"}
#: A push that only says that something may have changed.
HINT: Push = ("notified", 0, EXCLUSIVE, 0, 0.0, False)


def _waits(view: TaskView) -> bool:
    return bool(view.what) and view.came and view.at == "park" and not view.inside


def _kept(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else ("plain", answer)
