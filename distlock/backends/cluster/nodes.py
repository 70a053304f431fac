"""The nodes of a cluster: which one has a lock, and where a call goes on when that changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from distlock import clock
from distlock.backends.cluster.node import Node
from distlock.backends.cluster.slots import UNNAMED, Endpoint, Slots, moved, said, slot_of, slot_of_command
from distlock.errors import BackendUnavailable

T = TypeVar("T")
One = TypeVar("One")

#: How long to wait for a slot that is on its way to another node, seconds.
_MOVING = 0.01
#: A node that is left has so many seconds for what it was asked before.
_PARTING = 2.0
#: The answers of a node while keys of a slot are being moved.
_ON_ITS_WAY = ("ASK ", "TRYAGAIN")


class Nodes:
    """The nodes of one process. *make* makes one for each that is found, beginning with *seeds*.

    *shown*: the cluster, for messages. *doubted*: set when a node breaks off, which may be a primary no more.
    """

    def __init__(
        self,
        shown: str,
        seeds: Sequence[Endpoint],
        make: Callable[[Endpoint], Node],
        doubted: threading.Event,
    ) -> None:
        self._shown = shown
        self._seeds = seeds
        self._make = make
        self._doubted = doubted
        self._slots = Slots()
        self._nodes: dict[Endpoint, Node] = {}
        #: Nodes that failed and have not served since.
        self._suspects: set[Endpoint] = set()
        self._mutex = threading.RLock()
        self._never = threading.Event()

    def known(self, key: str) -> Node | None:
        """Return the node of *key*, as far as it is known without asking."""
        place = self._slots[slot_of(key)]
        return None if place is None or self._doubted.is_set() else self._nodes.get(place)

    def close(self) -> None:
        for node in list(self._nodes.values()):
            node.close()

    def after_fork(self) -> None:
        for node in self._nodes.values():
            node.after_fork()
        self._mutex, self._never = threading.RLock(), threading.Event()

    def settle(self, deadline: float) -> bool:
        """Have the answers to releases read: see `distlock.backends.optional.Posts`."""
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

    def of(self, key: str, call: Callable[[Node, float], T], deadline: float) -> T:
        """Call *call* with the node of *key* and a deadline, and return its result."""
        while True:
            place, node = self._node_of(slot_of(key), deadline)
            try:
                answer = call(node, deadline)
            except BackendUnavailable as error:
                failure = error
            else:
                self._suspects.discard(place)
                return answer
            if not self._is_elsewhere(failure, place, deadline):
                raise self._told(failure)
            if moved(failure, place):
                self._carry(node, key, deadline)

    def of_each(
        self,
        many: Sequence[One],
        slot: Callable[[One], int],
        call: Callable[[Node, Sequence[One], float], Sequence[T | None]],
        deadline: float,
        every: bool = False,
    ) -> list[T | None]:
        """Call *call* for *many*, node by node, and return the results; None where nothing is known.

        Raises `BackendUnavailable` where nothing is known of any; *every*: of one.
        """
        answers: list[T | None] = [None] * len(many)
        failure: BackendUnavailable | None = None
        left: Sequence[int] = range(len(many))
        while left:
            again: list[int] = []
            for place, numbers in self._by_place([(number, slot(many[number])) for number in left], deadline):
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
        unknown = [answer is None for answer in answers]
        if failure is not None and (any(unknown) if every else all(unknown)):
            raise self._told(failure)
        return answers

    def primaries(self, deadline: float) -> list[tuple[Endpoint, Node]]:
        """All that have slots, as one of them tells now."""
        self._look(deadline)
        return [(place, self._opened(place)) for place in sorted(self._slots.primaries)]

    def replies(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """To each of *commands*, from the node of its key. Raises `BackendUnavailable` if one is missing."""
        answers = self.of_each(commands, slot_of_command, Node.replies, deadline, every=True)
        return [reply for (reply,) in filter(None, answers)]

    def _by_place(
        self, slots: Sequence[tuple[int, int]], deadline: float
    ) -> Iterable[tuple[Endpoint, list[int]]]:
        """The numbers beside *slots*, put together by where those are."""
        places: dict[Endpoint, list[int]] = {}
        for number, slot in slots:
            places.setdefault(self._node_of(slot, deadline)[0], []).append(number)
        return places.items()

    def _node_of(self, slot: int, deadline: float) -> tuple[Endpoint, Node]:
        place = self._slots[slot]
        if place is None or place in self._suspects or self._doubted.is_set():
            self._doubted.clear()
            try:
                self._look(deadline, but=place)
            except BackendUnavailable:
                if place is None:
                    raise
            place = self._slots[slot]
        if place is None:
            raise BackendUnavailable(
                f"No node of the Redis Cluster at {self._shown} has the slot {slot}, in which this "
                "lock lies: see CLUSTER INFO there."
            )
        return place, self._opened(place)

    def _is_elsewhere(self, failure: BackendUnavailable, place: Endpoint, deadline: float) -> bool:
        """Whether what the node at *place* has failed to do may be done at another one, or in a moment."""
        if redirection := moved(failure, place):
            slot, now_at = redirection
            if now_at.host != UNNAMED:
                self._slots[slot] = now_at
            else:
                with suppress(BackendUnavailable):
                    self._look(deadline)
            return clock.now() < deadline
        if said(failure).startswith(_ON_ITS_WAY):
            self._never.wait(_MOVING)
            return clock.now() < deadline
        # Another one may be about to take its place. Until it serves again each call asks about that first.
        self._suspects.add(place)
        with suppress(BackendUnavailable):
            self._look(deadline, but=place)
        return place not in self._slots.primaries

    def _told(self, failure: BackendUnavailable) -> BackendUnavailable:
        """*failure*, for a caller who is to mend the cluster and not the URL."""
        if not said(failure).startswith("CLUSTERDOWN"):
            return failure
        told = BackendUnavailable(
            f"The Redis Cluster at {self._shown} does not serve: {said(failure).rstrip('.')}. See CLUSTER "
            "INFO there: where one slot has no primary all stop, unless cluster-require-full-coverage is no."
        )
        told.__cause__ = failure
        return told

    def _opened(self, place: Endpoint) -> Node:
        with self._mutex:
            if (node := self._nodes.get(place)) is None:
                node = self._nodes[place] = self._make(place)
            return node

    def _carry(self, node: Node, key: str, deadline: float) -> None:
        """*key* is not *node*'s any more. A release that was sent there is repeated where it is now."""
        posted = node.abandon(key)
        if posted is None:
            return
        released = self.of(key, lambda other, by: other.release(posted.request, by), deadline)
        if posted.undone and not released:
            posted.notify(False)

    def _look(self, deadline: float, but: Endpoint | None = None) -> None:
        """Ask a node which one has which slot; not the one at *but*."""
        failure: BackendUnavailable | None = None
        for place in dict.fromkeys((*self._nodes, *self._seeds)):
            if place == but:
                continue
            try:
                # One that does not answer leaves time for the others.
                slots = self._opened(place).slots((clock.now() + deadline) / 2)
            except BackendUnavailable as error:
                failure = error
                continue
            # One that was taken out of the cluster runs on, and knows of no slot.
            if slots:
                self._slots.read(slots, place)
                self._drop_others()
                return
        if failure is not None:
            raise failure

    def _drop_others(self) -> None:
        """Close what is no primary any more, and lead nowhere."""
        primaries = self._slots.primaries
        with self._mutex:
            gone = [self._nodes.pop(place) for place in self._nodes.keys() - primaries]
        for node in gone:
            # It may not answer any more, and nobody waits for that.
            retire = partial(self._retire, node)
            threading.Thread(target=retire, name="distlock-redis-closing", daemon=True).start()

    def _retire(self, node: Node) -> None:
        """Close it. What was released there, and has moved on, is released where it is now."""
        deadline = clock.now() + _PARTING
        with suppress(BackendUnavailable):
            while keys := _refused(node, deadline):
                for key in keys:
                    self._carry(node, key, deadline)
        node.close()


def _refused(node: Node, deadline: float) -> list[str]:
    """The keys whose releases *node* has answered with a refusal, as far as it has answered."""
    try:
        node.settle(deadline)
    except BackendUnavailable:
        return node.lost()
    return []
