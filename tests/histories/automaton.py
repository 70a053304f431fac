"""A process as an automaton: what one event makes of a state is played once, and remembered.

A state has a key (`tests.histories.keys`) and a history of events that leads there, for generators can't be
copied: the next event is played to a process that has played that history anew.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from tests.histories.keys import describe
from tests.histories.process import Call, Event, Family, LiveProcess, Ordinal, Scene, Task

__all__ = ["Automaton", "Node", "TaskView", "Transition"]

#: How many processes are kept to play on.
POOL = 64
#: Of the histories that lead to a state that is known already, one of so many is kept for the proof.
SAMPLE = 8


class TaskView(NamedTuple):
    """What the scheduler sees of a task. Names are places in `Node.names`."""

    what: str
    #: park, call or done.
    at: str
    #: Whether it goes on by itself now.
    ready: bool = False
    #: Seconds until it goes on by itself at the latest.
    until: float = 0.0
    #: Whether it has asked for the lock.
    came: bool = False
    #: The name of the call, and each request that it is about: token, mode, wait, limit, permits, number.
    call: str = ""
    about: tuple[tuple[Any, ...], ...] = ()
    outcome: str = ""
    #: The mode in which it believes to hold the lock now, its permits, and the number and place of its fence.
    inside: tuple[str, int, int, int] | None = None


@dataclass(slots=True)
class Node:
    """A state of a process. *names*: the tokens and numbers that it remembers."""

    history: tuple[Event, ...]
    names: list[Ordinal]
    order: tuple[int, ...]
    #: How many names the history has met.
    met: int
    tasks: tuple[TaskView, ...]
    #: What is left although all callers are gone; "": nothing.
    left: str
    #: Whether a token came with the event, by its name: a release that was posted and not answered.
    posted: tuple[int, ...] = ()
    #: Of each name, whether it is a token; else it is a number.
    tokens: tuple[bool, ...] = ()
    #: The next states, by event.
    next: dict[Event, Transition] = field(default_factory=dict)


class Transition(NamedTuple):
    """What an event makes of a state."""

    node: int
    #: The old place of each name; -1 and -2: it came with the event; None: the engine has drawn it.
    names: tuple[int | None, ...]
    #: The old place of each task.
    tasks: tuple[int, ...]


class Alternative(NamedTuple):
    """Another history that leads to a state."""

    node: int
    history: tuple[Event, ...]
    names: list[Ordinal]
    order: tuple[int, ...]
    met: int


class Automaton:
    """The states of a process with *callers*, as far as they were needed."""

    def __init__(self, family: Family, scene: Scene, callers: str) -> None:
        self._family, self._scene, self._callers = family, scene, callers
        self.nodes: list[Node] = []
        self._by_key: dict[bytes, int] = {}
        self._pool: OrderedDict[tuple[Event, ...], LiveProcess] = OrderedDict()
        self._merges = itertools.count(1)
        self.alternatives: list[Alternative] = []
        #: How many events were played, those of histories that were played anew included.
        self.played = 0
        self._note(self._live(()), ())

    def step(self, number: int, event: Event) -> Transition:
        """Return what *event* makes of the state *number*. Its names are places in `Node.names`."""
        node = self.nodes[number]
        known = node.next.get(event)
        if known is not None:
            return known
        live = self._live(node.history)
        played = self._translated(event, node.names, node.order, node.met)
        live.play(played)
        self.played += 1
        history = (*node.history, played)
        to, names, order = self._note(live, history)
        found = Transition(
            to,
            tuple(self._origin(name, node.names, node.met, event) for name in names),
            tuple(node.order.index(task) for task in order),
        )
        node.next[event] = found
        self._pool[history] = live
        if len(self._pool) > POOL:
            self._pool.popitem(last=False)
        return found

    def prove(self) -> tuple[int, list[str]]:
        """Play to each `Alternative` the events that were played to its state. Return how many, and faults.

        Equal keys have to have equal views, and equal events have to lead to equal keys.
        """
        events, faults = 0, []
        for one in self.alternatives:
            node = self.nodes[one.node]
            live = self._replay(one.history)
            if self._views(live, one.names, one.order) != node.tasks or live_left(live) != node.left:
                faults.append(f"{one.history} and {node.history} have one key, and different views")
                continue
            for event, found in node.next.items():
                live = self._replay(one.history)
                live.play(self._translated(event, one.names, one.order, one.met))
                key, _, _ = describe(live)
                events += 1
                if self._by_key.get(_digest(key)) != found.node:
                    faults.append(f"{one.history} and {node.history}: {event} tells them apart")
        return events, faults

    # -- playing ---------------------------------------------------------------------------------

    def _live(self, history: tuple[Event, ...]) -> LiveProcess:
        live = self._pool.pop(history, None)
        return live if live is not None else self._replay(history)

    def _replay(self, history: tuple[Event, ...]) -> LiveProcess:
        live = LiveProcess(self._family, self._scene, self._callers)
        for event in history:
            live.play(event)
        self.played += len(history)
        return live

    def _note(
        self, live: LiveProcess, history: tuple[Event, ...]
    ) -> tuple[int, list[Ordinal], tuple[int, ...]]:
        key, names, order = describe(live)
        digest = _digest(key)
        number = self._by_key.get(digest)
        if number is None:
            number = self._by_key[digest] = len(self.nodes)
            views = self._views(live, names, order)
            posted = tuple(names.index(name) for name in live.posted)
            tokens = tuple(live.is_token(name) for name in names)
            self.nodes.append(
                Node(history, names, order, len(live.names), views, live_left(live), posted, tokens)
            )
        elif next(self._merges) % SAMPLE == 0:
            self.alternatives.append(Alternative(number, history, names, order, len(live.names)))
        return number, names, order

    # -- names -----------------------------------------------------------------------------------

    def _translated(self, event: Event, names: list[Ordinal], order: tuple[int, ...], met: int) -> Event:
        """Return *event* with the names and the task of a process instead of places."""

        def name(place: int) -> Ordinal:
            return names[place] if place >= 0 else met - 1 - place

        what, *rest = event
        if what == "tick":
            return event
        if what == "push":
            kind, token, number, sent = rest
            if kind == "handed_off":
                return what, kind, name(token), name(number), sent
            return what, kind, name(token) if kind in ("lost", "ended") else 0, 0, sent
        if what == "reply":
            return what, name(rest[0]), rest[1]
        task, *more = rest
        if more and isinstance(more[0], tuple) and more[0] and more[0][0] == "acquired":
            kind, number, ttl, followed = more[0]
            more = [(kind, name(number), ttl, followed)]
        return (what, order[task], *more)

    def _origin(self, name: Ordinal, names: list[Ordinal], met: int, event: Event) -> int | None:
        if name in names:
            return names.index(name)
        brought = -(name - met) - 1
        return brought if 0 > brought >= -_brought(event) else None

    # -- views -----------------------------------------------------------------------------------

    def _views(self, live: LiveProcess, names: list[Ordinal], order: tuple[int, ...]) -> tuple[TaskView, ...]:
        places = {name: place for place, name in enumerate(names)}
        return tuple(self._view(live, live.tasks[number], places) for number in order)

    def _view(self, live: LiveProcess, task: Task, places: dict[Ordinal, int]) -> TaskView:
        inside = None
        grant = task.grant
        if task.inside and grant is not None and not grant.lost:
            first = grant._hold.first_number
            offset = grant._fence.number - first
            permits = grant._options.permits
            inside = task.inside, permits, places[live.names[first]], offset
        if task.step is None:
            return TaskView(task.what, "done", came=task.came, outcome=task.outcome, inside=inside)
        if isinstance(task.step, Call):
            about = []
            for request, number in LiveProcess.asked_for(task.step):
                about.append(
                    (
                        places[live.names[request.token]],
                        request.mode,
                        request.wait,
                        request.limit,
                        request.permits,
                        -1 if number is None else places[live.names[number]],
                    )
                )
            name = task.step.function.__name__
            return TaskView(task.what, "call", came=task.came, call=name, about=tuple(about), inside=inside)
        until = max(0.0, round(task.until - live.now, 6))
        ready = task.is_ready(live.now) or until == 0.0
        return TaskView(task.what, "park", ready, until, task.came, inside=inside)


def live_left(live: LiveProcess) -> str:
    """Return what *live* still keeps."""
    engine = live.engine
    kept = {
        "wait queues": engine.queues.by_key,
        "waiters": engine.queues.waiting,
        "holds": engine.renewer.holds,
        "cancellations": len(engine.cancellations),
        "replies": live.posted,
        "cleanups": engine.section.cleanups,
    }
    return ", ".join(what for what, some in kept.items() if some)


def _brought(event: Event) -> int:
    """Return how many names *event* may bring."""
    what = event[0]
    if what == "push":
        return -int(min(0, event[2], event[3]))
    if what == "reply":
        return -int(min(0, event[1]))
    last = event[-1]
    return -int(min(0, last[1])) if isinstance(last, tuple) and last and last[0] == "acquired" else 0


def _digest(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()
