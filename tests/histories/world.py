"""A state of all: the lock service, the processes, and what is under way between them."""

from __future__ import annotations

import itertools
import marshal
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from tests.histories.automaton import Automaton
from tests.histories.services import Push, State

#: The number of a token says whose it is: this many processes may take part.
MOST = 8

#: An action: what is done, by which process, with which of its tasks.
Action = tuple[str, int, int]


class Proc(NamedTuple):
    """A process. *names*: the tokens and numbers of its node, as the world calls them."""

    status: str
    node: int
    names: tuple[int, ...]
    #: The answer to the call of each task, once the lock service has carried it out.
    answers: tuple[Any, ...]
    inbox: tuple[Push, ...] = ()
    #: The releases that were sent and not awaited.
    posted: tuple[tuple[Any, ...], ...] = ()
    #: The calls that failed and are still under way.
    late: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    #: The numbers of holds whose session has ended.
    ended: tuple[int, ...] = ()


class World(NamedTuple):
    """A state of all. *left*: how many faults may still come."""

    service: State
    procs: tuple[Proc, ...]
    left: int
    #: The fence of the latest writer.
    top: tuple[int, int] = (0, 0)
    #: The kind of the latest fault; "": none.
    fault: str = ""


class Step(NamedTuple):
    """An action and the world after it. *wrong*: what it violates; "": nothing."""

    action: Action
    world: World
    wrong: str = ""
    #: The old place of each task of the process that has acted.
    tasks: tuple[int, ...] = ()


class Least:
    """Says which worlds are one: those that differ only in names and in the order of equal processes.

    *callers*: those of each process. *automata*: the processes.
    """

    def __init__(self, callers: Sequence[str], automata: Sequence[Automaton]) -> None:
        self._automata = automata
        places = range(len(callers))
        self._orders = [
            order
            for order in itertools.permutations(places)
            if all(callers[new] == callers[old] for new, old in enumerate(order))
        ]

    def of(self, world: World) -> tuple[tuple[Any, ...], tuple[int, ...], bytes]:
        """Return *world* with its least names, for `restored`; the order of its processes; its key."""
        orders = self._orders
        if len(orders) > 1:
            # Most processes differ at first sight.
            marks = [(proc.status, proc.node, len(proc.inbox)) for proc in world.procs]
            first = min([marks[old] for old in order] for order in orders)
            orders = [order for order in orders if [marks[old] for old in order] == first]
        if len(orders) == 1:
            one = self._renamed(world, orders[0])
            return one, orders[0], blake2b(marshal.dumps(one, 2), digest_size=16).digest()
        found = [(self._renamed(world, order), order) for order in orders]
        written, one, order = min((marshal.dumps(one, 2), one, order) for one, order in found)
        return one, order, blake2b(written, digest_size=16).digest()

    def _renamed(self, world: World, order: tuple[int, ...]) -> tuple[Any, ...]:
        tokens: dict[int, int] = {}
        counts = [0] * len(order)
        places = {old: new for new, old in enumerate(order)}

        def token(value: int) -> int:
            if value not in tokens:
                new = places[value % MOST]
                tokens[value] = MOST * counts[new] + new
                counts[new] += 1
            return tokens[value]

        numbers = {0, world.service.last_number, world.top[0]}
        numbers.update(one[4] for one in world.service.holds)
        for old, proc in enumerate(world.procs):
            known = self._automata[old].nodes[proc.node].tokens
            numbers.update(value for value, is_token in zip(proc.names, known, strict=False) if not is_token)
            numbers.update(one[3] for one in proc.inbox)
            numbers.update(one[1] for one in proc.answers if one is not None and one[0] == "acquired")
        rank = {value: place for place, value in enumerate(sorted(numbers))}
        procs = []
        for old in order:
            proc = world.procs[old]
            known = self._automata[old].nodes[proc.node].tokens
            procs.append(
                (
                    proc.status,
                    proc.node,
                    tuple(
                        token(value) if is_token else rank[value]
                        for value, is_token in zip(proc.names, known, strict=False)
                    ),
                    tuple(
                        (one[0], rank[one[1]], *one[2:]) if one is not None and one[0] == "acquired" else one
                        for one in proc.answers
                    ),
                    tuple(
                        (
                            one[0],
                            token(one[1]) if one[0] in _WITH_TOKEN else 0,
                            one[2],
                            rank[one[3]],
                            *one[4:],
                        )
                        for one in proc.inbox
                    ),
                    tuple((token(one[0]), *one[1:]) for one in proc.posted),
                    tuple(
                        (call, tuple((token(one[0]), *one[1:5], -1) for one in about))
                        for call, about in proc.late
                    ),
                    tuple(rank[value] for value in proc.ended if value in rank),
                )
            )
        service = world.service
        holds = tuple((token(one[0]), *one[1:4], rank[one[4]], *one[5:]) for one in service.holds)
        queue = tuple((token(one[0]), *one[1:]) for one in service.queue)
        top = rank[world.top[0]], world.top[1]
        state = holds, queue, rank[service.last_number]
        return state, tuple(procs), world.left, top, world.fault


def restored(least: tuple[Any, ...]) -> World:
    """Return the world that `Least.of` has written down."""
    service, procs, *rest = least
    return World(State(*service), tuple(Proc(*one) for one in procs), *rest)


def with_process(world: World, number: int, proc: Proc) -> World:
    procs = list(world.procs)
    procs[number] = proc
    return world._replace(procs=tuple(procs))


def with_value(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


_WITH_TOKEN = {"handed_off", "lost", "ended"}
