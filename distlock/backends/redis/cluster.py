"""Locks in a Redis Cluster. A lock is one slot, and so all that belongs to it lies on one node.

Each primary is a `RedisBackend` of its own, with its connections and the one that it pushes to. So a waiter
hears the node that hands its lock over, and that node counts it as a listener, as the scripts want it: what
another node's subscribers hear is not counted, see https://redis.io/docs/latest/commands/publish/.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from distlock import clock
from distlock.backends.base import Ask, Busy, Capabilities, Held, Queued, Sink
from distlock.backends.latches import LatchState
from distlock.backends.optional import Begun
from distlock.backends.redis.cluster_address import ClusterAddress
from distlock.backends.redis.node import Node
from distlock.backends.redis.slots import Endpoint, Slots, moved, said, slot_of
from distlock.errors import BackendUnavailable
from distlock.numbers import LONG, check_seconds

T = TypeVar("T")
One = TypeVar("One")

#: How long to wait for a slot that is on its way to another node, seconds.
_MOVING = 0.01
#: What a node answers while keys of a slot are on their way.
_ON_ITS_WAY = ("ASK ", "TRYAGAIN")


class ClusterBackend:
    """One process's locks in the cluster of which *url* names some nodes: ``redis+cluster://h1,h2:7000``.

    The arguments are those of `RedisBackend`, of each node; *io_timeout* bounds a call over all of them.
    """

    # A process has a name of its own on each node, so nobody could put together what it says of itself there.
    capabilities = Capabilities(
        several_processes=True, lease=True, fence=True, latch=True, read=True, permits=True
    )

    def __init__(
        self,
        url: str,
        *,
        io_timeout: float = 2.0,
        max_connections: int = 64,
        ack_window: float = 0.5,
        fence_ttl: float = 60.0,
        client_name: str = "distlock",
        credential_provider: object = None,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._address = ClusterAddress(url)
        self._options: dict[str, Any] = {
            "io_timeout": io_timeout,
            "max_connections": max_connections,
            "ack_window": ack_window,
            "fence_ttl": fence_ttl,
            "client_name": client_name,
            "credential_provider": credential_provider,
        }
        # Whatever is wrong with any of this is told now.
        self.window = self._make(self._address.places[0]).window
        self._sink: Sink | None = None
        self._begin()

    def __repr__(self) -> str:
        return f"<ClusterBackend {self._address.shown}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        self._begin()

    def close(self) -> None:
        nodes = self._nodes
        self._begin()
        for node in nodes.values():
            node.close()

    def after_fork(self) -> None:
        for node in self._nodes.values():
            node.after_fork()
        self._mutex = threading.RLock()

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        return self._of(ask.key, lambda node, by: node.request(ask, by), deadline)

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        return self._of(ask.key, lambda node, by: node.cancel(ask, by), deadline)

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        return self._of(ask.key, lambda node, by: node.release(ask, by), deadline)

    def post(self, ask: Ask, told: Callable[[bool | None], None], deadline: float = math.inf) -> None:
        self._of(ask.key, lambda node, by: node.post(ask, told, by), deadline)

    def settle(self, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        done = True
        for place, node in list(self._nodes.items()):
            try:
                done = node.settle(deadline) and done
            except BackendUnavailable as error:
                if not self._is_elsewhere(error, place, deadline):
                    raise
                for key in node.lost():
                    if self._slots[slot_of(key)] != place:
                        self._carry(node, key, deadline)
                done = False
        return done

    def downgrade(self, ask: Ask, deadline: float = math.inf) -> bool:
        return self._of(ask.key, lambda node, by: node.downgrade(ask, by), deadline)

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        return self._of(ask.key, lambda node, _: node.raise_floor(ask, number))

    def locked(self, key: str) -> bool:
        return self._of(key, lambda node, _: node.locked(key))

    def renew(self, asks: Sequence[Ask]) -> list[bool | None]:
        return self._of_each(asks, lambda ask: ask.key, lambda node, some, _: node.renew(some))

    def acknowledge(self, handed: Sequence[tuple[Ask, int]], deadline: float = math.inf) -> list[bool | None]:
        return self._of_each(
            handed, lambda one: one[0].key, lambda node, some, by: node.acknowledge(some, by), deadline
        )

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self._of(key, lambda node, by: node.make_latch(key, total, ttl, maker, by), deadline)

    def count_latch_down(self, key: str, by: int, part: str, deadline: float = math.inf) -> LatchState | None:
        return self._of(key, lambda node, until: node.count_latch_down(key, by, part, until), deadline)

    def delete_latch(self, key: str, deadline: float = math.inf) -> bool:
        return self._of(key, lambda node, by: node.delete_latch(key, by), deadline)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        seen: dict[str, LatchState | None] = {}
        for key in keys:
            (seen[key],) = self._of(key, partial(_look_at_latch, key, watch), deadline)
        return [seen[key] for key in keys]

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        name, (first, *_) = call.__name__, arguments
        if name in ("acknowledge", "look_at_latches"):
            if len(first) != 1:
                return None
            (first,) = first
        key = first if isinstance(first, str) else first[0].key if isinstance(first, tuple) else first.key
        # Where it is not known, or is another node's now, a thread finds out.
        place = self._slots[slot_of(key)]
        node = None if place is None else self._nodes.get(place)
        return None if node is None else node.begin(getattr(node, name), *arguments)

    def _of(self, key: str, call: Callable[[Node, float], T], deadline: float = math.inf) -> T:
        """What *call* of the node that has *key* returns. It is given when to end."""
        deadline = self._by(deadline)
        while True:
            place, node = self._node_of(key, deadline)
            try:
                answer = call(node, deadline)
            except BackendUnavailable as error:
                failure = error
            else:
                self._suspects.discard(place)
                return answer
            if not self._is_elsewhere(failure, place, deadline):
                raise failure
            if moved(failure, place):
                self._carry(node, key, deadline)

    def _of_each(
        self,
        many: Sequence[One],
        key_of: Callable[[One], str],
        call: Callable[[Node, Sequence[One], float], Sequence[bool | None]],
        deadline: float = math.inf,
    ) -> list[bool | None]:
        """What *call* says to each of *many*, asked node by node. None where nothing is known."""
        deadline = self._by(deadline)
        answers: list[bool | None] = [None] * len(many)
        failure: BackendUnavailable | None = None
        left: Sequence[int] = range(len(many))
        while left:
            again: list[int] = []
            for place, numbers in self._by_place(
                [(number, key_of(many[number])) for number in left], deadline
            ):
                try:
                    found = call(self._opened(place), [many[number] for number in numbers], deadline)
                except BackendUnavailable as error:
                    failure = error
                    again += numbers if self._is_elsewhere(error, place, deadline) else ()
                    continue
                self._suspects.discard(place)
                for number, answer in zip(numbers, found, strict=True):
                    answers[number] = answer
            left = again
        if failure is not None and all(answer is None for answer in answers):
            raise failure
        return answers

    def _by_place(
        self, keys: Sequence[tuple[int, str]], deadline: float
    ) -> Iterable[tuple[Endpoint, list[int]]]:
        """The numbers of *keys*, put together by where they are."""
        places: dict[Endpoint, list[int]] = {}
        for number, key in keys:
            places.setdefault(self._node_of(key, deadline)[0], []).append(number)
        return places.items()

    def _node_of(self, key: str, deadline: float) -> tuple[Endpoint, Node]:
        slot = slot_of(key)
        place = self._slots[slot]
        if place is None or place in self._suspects:
            try:
                self._look(deadline, but=place)
            except BackendUnavailable:
                if place is None:
                    raise
            place = self._slots[slot]
        if place is None:
            raise BackendUnavailable(
                f"No node of the Redis Cluster at {self._address.shown} has the slot {slot}, in which this "
                "lock lies: see CLUSTER INFO there."
            )
        return place, self._opened(place)

    def _is_elsewhere(self, failure: BackendUnavailable, place: Endpoint, deadline: float) -> bool:
        """Whether what the node at *place* has failed to do may be done at another one, or in a moment."""
        if redirection := moved(failure, place):
            slot, now_at = redirection
            self._slots[slot] = now_at
            return clock.now() < deadline
        if said(failure).startswith(_ON_ITS_WAY):
            self._never.wait(_MOVING)
            return clock.now() < deadline
        # Another one may be about to take its place. Until it serves again each call asks about that first.
        self._suspects.add(place)
        with suppress(BackendUnavailable):
            self._look(deadline, but=place)
        return place not in self._slots.primaries

    def _opened(self, place: Endpoint) -> Node:
        with self._mutex:
            if (node := self._nodes.get(place)) is None:
                node = self._make(place)
                if self._sink is not None:
                    node.open(self._sink)
                self._nodes[place] = node
            return node

    def _carry(self, node: Node, key: str, deadline: float) -> None:
        """*key* is not *node*'s any more. A release that was sent there is repeated where it is now."""
        posted = node.forsake(key)
        if posted is not None and not self.release(posted.ask, deadline) and posted.undone:
            posted.told(False)

    def _look(self, deadline: float, but: Endpoint | None = None) -> None:
        """Ask a node which one has which slot; not the one at *but*."""
        failure: BackendUnavailable | None = None
        for place in dict.fromkeys((*self._nodes, *self._address.places)):
            if place == but:
                continue
            try:
                # One that does not answer leaves time for the others.
                self._slots.read(self._opened(place).slots((clock.now() + deadline) / 2), place)
            except BackendUnavailable as error:
                failure = error
            else:
                self._drop_others()
                return
        if failure is not None:
            raise failure

    def _drop_others(self) -> None:
        """Close what is no primary any more, and lead nowhere."""
        primaries = self._slots.primaries
        self._suspects &= primaries
        with self._mutex:
            gone = [self._nodes.pop(place) for place in self._nodes.keys() - primaries]
        for node in gone:
            # It may not answer any more, and nobody waits for that.
            threading.Thread(target=node.close, name="distlock-redis-closing", daemon=True).start()

    def _make(self, place: Endpoint) -> Node:
        return Node(self._address.url_of(place), **self._options)

    def _begin(self) -> None:
        self._mutex = threading.RLock()
        self._never = threading.Event()
        self._slots = Slots()
        #: Those that failed, and have not served since.
        self._suspects: set[Endpoint] = set()
        self._nodes: dict[Endpoint, Node] = {}

    def _by(self, deadline: float) -> float:
        return min(deadline, clock.now() + self._io_timeout)


def _look_at_latch(key: str, watch: bool, node: Node, deadline: float) -> list[LatchState | None]:
    return node.look_at_latches([key], watch, deadline)
