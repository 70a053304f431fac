"""A search through all states of a scene, breadth first: the first violation has the shortest history."""

from __future__ import annotations

import sys
from collections import Counter, deque
from dataclasses import dataclass, field

from tests.histories.process import Family, Scene
from tests.histories.rules import Rules
from tests.histories.world import Action, Step, World, restored


@dataclass
class Found:
    """What a search has found."""

    #: How many states there are, by the kind of the latest fault; "": without any.
    states: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    #: How many histories lead to an end and go round no loop.
    histories: Counter[str] = field(default_factory=Counter)
    #: How many states of single processes there are, and how many events were played for them.
    nodes: int = 0
    played: int = 0
    #: How many events have proved the keys.
    proved: int = 0
    #: How many states were not looked at, because the bound was reached.
    cut: int = 0
    wrong: str = ""
    #: The shortest history that leads to what is wrong.
    history: list[str] = field(default_factory=list)


class Search:
    """All states of *scene* with at most *faults* faults of the *kinds*, up to *most* states.

    *whole*: whether a call and its answer are one action.
    """

    def __init__(
        self,
        family: Family,
        scene: Scene,
        kinds: tuple[str, ...] = (),
        faults: int = 1,
        most: int = sys.maxsize,
        whole: bool = False,
    ) -> None:
        self.rules = Rules(family, scene, kinds, whole)
        self._faults = faults if kinds else 0
        self._most = most
        self._seen: dict[bytes, int] = {}
        #: Of each state: the kind of its latest fault, the state before it, the action, and the next states.
        self._fault: list[str] = []
        self._before: list[tuple[int, Action]] = []
        self._next: list[list[int]] = []
        self._ends: list[int] = []
        self._queue: deque[tuple[int, World]] = deque()

    def run(self) -> Found:
        found = Found()
        self._meet(self.rules.first(self._faults), -1, ("", 0, 0))
        while self._queue and not found.wrong and len(self._seen) < self._most:
            number, world = self._queue.popleft()
            self._look(number, world, found)
        found.cut = len(self._queue)
        found.states.update(self._fault)
        found.ends.update(self._fault[number] for number in self._ends)
        found.nodes = sum(len(one.nodes) for one in self.rules.distinct)
        if not found.wrong:
            self._prove(found)
            if not found.cut:
                self._complete(found)
        found.played = sum(one.played for one in self.rules.distinct)
        return found

    def _look(self, number: int, world: World, found: Found) -> None:
        steps = self.rules.steps(world)
        for step in steps:
            if step.wrong:
                found.wrong, found.history = step.wrong, self._history(number, step.action)
                return
            self._next[number].append(self._meet(step.world, number, step.action))
        if all(step.action[0] in self.rules.faults for step in steps):
            self._ends.append(number)
            if wrong := self.rules.at_end(world):
                found.wrong, found.history = wrong, self._history(number)

    def _prove(self, found: Found) -> None:
        for automaton in self.rules.distinct:
            events, faults = automaton.prove()
            found.proved += events
            if faults:
                found.wrong = f"the key is wrong: {faults[0]}"

    def _complete(self, found: Found) -> None:
        """Count the histories, and look for states from which no end can be reached."""
        leads = self._lead_to_an_end()
        lost = next((number for number in range(len(self._next)) if not leads[number]), None)
        if lost is not None and not found.wrong:
            found.wrong, found.history = "from here nobody ever goes on", self._history(lost)
        order = self._order()
        for kind in found.ends:
            found.histories[kind] = self._count(order, kind)

    def _meet(self, world: World, before: int, action: Action) -> int:
        least, _, key = self.rules.least.of(world)
        number = self._seen.get(key)
        if number is None:
            number = self._seen[key] = len(self._seen)
            self._fault.append(world.fault)
            self._before.append((before, action))
            self._next.append([])
            self._queue.append((number, restored(least)))
        return number

    # -- histories -------------------------------------------------------------------------------

    def _history(self, number: int, last: Action | None = None) -> list[str]:
        """Return the history of the state *number*, and then *last*, in words."""
        actions = [] if last is None else [last]
        while number > 0:
            number, action = self._before[number]
            actions.append(action)
        if last is not None:
            actions = [*actions[1:][::-1], last]
        else:
            actions.reverse()
        return self._told(actions)

    def _told(self, actions: list[Action]) -> list[str]:
        """Return *actions* in words, with one name for each process and caller from first to last."""
        world = self.rules.first(self._faults)
        processes = list(range(len(world.procs)))
        tasks = [list(range(len(proc.answers))) for proc in world.procs]
        lines = []
        for action in actions:
            step = next(one for one in self.rules.steps(world) if one.action == action)
            lines.append(self._line(world, step, processes, tasks))
            moved = action[1]
            if step.tasks and action[0] not in ("time", "time-out", "turn"):
                tasks[moved] = [tasks[moved][old] for old in step.tasks]
            if step.wrong:
                break
            least, order, _ = self.rules.least.of(step.world)
            world = restored(least)
            processes = [processes[old] for old in order]
            tasks = [tasks[old] for old in order]
        return lines

    def _line(self, world: World, step: Step, processes: list[int], tasks: list[list[int]]) -> str:
        what, number, task = step.action
        process = "AB CDEFGH".replace(" ", "")[processes[number]]
        if what in ("time", "time-out", "turn"):
            return what
        if what in _OF_PROCESSES:
            return f"{process}: {what}"
        view = self.rules.node(world, number).tasks[task]
        who = f"{process}{tasks[number][task] + 1}" if view.what else f"{process}'s maintenance thread"
        return f"{who}: {what}{' ' + view.call if view.call else ''}"

    def _lead_to_an_end(self) -> list[bool]:
        back: list[list[int]] = [[] for _ in self._next]
        for number, following in enumerate(self._next):
            for one in following:
                back[one].append(number)
        leads = [False] * len(self._next)
        todo = list(self._ends)
        for one in todo:
            leads[one] = True
        while todo:
            for one in back[todo.pop()]:
                if not leads[one]:
                    leads[one] = True
                    todo.append(one)
        return leads

    def _order(self) -> list[tuple[int, list[int]]]:
        """Return each state after those that follow it, with these; what goes round a loop is left out."""
        state = bytearray(len(self._next))
        order: list[tuple[int, list[int]]] = []
        ways: dict[int, list[int]] = {}
        stack = [(0, 0)]
        while stack:
            number, place = stack.pop()
            state[number] = 1
            following = self._next[number]
            way = ways.setdefault(number, [])
            while place < len(following) and state[following[place]]:
                if state[following[place]] == 2:
                    way.append(following[place])
                place += 1
            if place < len(following):
                # It is done before *number* goes on with the same place.
                stack += [(number, place), (following[place], 0)]
                continue
            order.append((number, ways.pop(number)))
            state[number] = 2
        return order

    def _count(self, order: list[tuple[int, list[int]]], kind: str) -> int:
        """Return how many histories lead to an end whose latest fault is of *kind*."""
        ends = {number for number in self._ends if self._fault[number] == kind}
        counts = [0] * len(self._next)
        for number, following in order:
            counts[number] = sum(counts[one] for one in following) + (number in ends)
        return counts[0]


#: The actions of a process as a whole.
_OF_PROCESSES = {
    "push",
    "release arrives",
    "late call arrives",
    "resume",
    "crash",
    "stop",
    "session",
    "lost push",
    "broken connection",
    "lost release",
}
