"""The nodes of a cluster: which node has a lock, and the repetition of calls when that changes.

See https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
"""

from __future__ import annotations

import binascii
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distlock import clock
from distlock.backends.base import Sink, WeakSink
from distlock.backends.inspectable import SeenProcess
from distlock.backends.redis.address import Endpoint
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.pending_releases import PendingRelease
from distlock.backends.redis.scripts import command, key_of
from distlock.errors import BackendUnavailable
from distlock.names import encode
from distlock.signal_safety import backend_thread

SLOTS = 16384
#: The host of a node without a name, in a cluster with ``cluster-preferred-endpoint-type hostname``.
UNNAMED = "?"
_REDIRECTION = re.compile(r"MOVED (\d+) (.*):(\d+)")

T = TypeVar("T")
One = TypeVar("One")

#: Seconds between two attempts while a slot is being moved to another node.
_MOVING = 0.01
#: Seconds that a node has for pending releases before it is closed, when it is no primary any more.
_CLOSING = 2.0
#: The beginnings of a node's errors while the keys of a slot are being moved.
_MIGRATING = ("ASK ", "TRYAGAIN")


def slot_of(key: str) -> int:
    """Return the slot of the lock *key*. All Redis keys of a lock have its encoded name as hash tag."""
    return _slot(encode(key).encode())


def slot_of_command(command: bytes) -> int:
    """Return the slot of *command*, whose key has no hash tag."""
    return _slot(key_of(command))


def _slot(hashed: bytes) -> int:
    return binascii.crc_hqx(hashed, 0) % SLOTS


def read_slots(reply: Sequence[Any], asked: Endpoint) -> dict[int, Endpoint]:
    """Return the primary of each slot by *reply*, the answer of the node *asked* to ``CLUSTER SLOTS``."""
    places: dict[int, Endpoint] = {}
    for first, last, primary, *_ in reply:
        host = _host_of(*primary) or asked.host
        places.update(dict.fromkeys(range(first, last + 1), Endpoint(host, primary[1])))
    return places


def _host_of(host: bytes | None, _: int, __: bytes, beside: Sequence[bytes] = ()) -> str:
    """Return a node's host in ``CLUSTER SLOTS``; "" if it has none there, which means the host asked."""
    if host == UNNAMED.encode():
        host = dict(zip(beside[::2], beside[1::2], strict=False)).get(b"ip")
    return host.decode() if host else ""


def redirection_in(error: BackendUnavailable, asked: Endpoint) -> tuple[int, Endpoint] | None:
    """Return the slot and its new node if *error* says that a slot has moved, else None.

    *asked*: the node that raised *error*.
    """
    found = _REDIRECTION.fullmatch(server_error(error))
    if found is None:
        return None
    slot, host, port = found.groups()
    return int(slot), Endpoint(host or asked.host, int(port))


def server_error(error: BackendUnavailable) -> str:
    """Return the server's error that caused *error*, or "" if there is none."""
    return str(error.__cause__) if isinstance(error.__cause__, ReplyError) else ""


class NodeSink(WeakSink):
    """A sink that passes notifications on, and sets *outdated* when the node disconnects or reconnects."""

    def __init__(self, sink: Sink, outdated: threading.Event) -> None:
        super().__init__(sink)
        self._outdated = outdated

    def missed_notifications(self) -> None:
        self._outdated.set()
        super().missed_notifications()


class ClusterNode(RedisBackend):
    """The backend of one node. Its errors may say that another node has the lock: see `redirection_in`."""

    _in_cluster = True

    def __init__(
        self, url: str, process: str, read_status: Callable[..., list[SeenProcess]], **options: Any
    ) -> None:
        """Make the backend of the node at *url*. Connects to nothing.

        *process*: the id of this process at all nodes. *read_status*: reads status from all nodes, as
        `_seen_processes` does from one.
        """
        self._cluster_process = process
        self._read_status = read_status
        super().__init__(url, **options)

    def own_names(self) -> list[str]:
        # Hand-offs are pushed to the first name, which differs for each node, because a message that one node
        # publishes reaches the subscribers of all nodes. Tokens begin with the second name: see break.lua.
        return [*super().own_names(), self._cluster_process]

    def _seen_processes(self, processes: Sequence[str], key: str, deadline: float) -> list[SeenProcess]:
        return self._read_status(processes, key, deadline)

    def replies(self, commands: Sequence[bytes], deadline: float) -> list[tuple[Any]]:
        """Return a tuple of one reply for each of *commands*. Raises `BackendUnavailable` for an error.

        Tuples, because a reply may be None, which `ClusterNodes.call_each` takes for an unknown result.
        """
        return [(reply,) for reply in self._ask(commands, deadline)]

    def slots(self, deadline: float) -> Any:
        """Return the node's map of all slots. Raises `BackendUnavailable`."""
        (reply,) = self._ask([command("CLUSTER", "SLOTS")], deadline)
        return reply

    def take_lost_release(self, key: str) -> PendingRelease | None:
        """Forget *key*, which another node has now. Return its release if that was lost, else None."""
        for request in self._entries.waiting():
            if request.key == key:
                self._entries.forget(request)
        posted = self._releases.by_key.get(key)
        if posted is None or not posted.lost:
            return None
        posted.end()
        return posted

    def lost(self) -> list[str]:
        """Return the keys whose releases this node has not carried out."""
        return self._releases.lost()


@dataclass(eq=False)
class ClusterNodes:
    """The nodes that one process knows.

    Args:
        shown: The cluster, for messages.
        seeds: The nodes that the URL names, which are asked if no known node answers.
        make: Makes the backend of a node.
    """

    _shown: str
    _seeds: Sequence[Endpoint]
    _make: Callable[[Endpoint], ClusterNode]
    #: Set when a node disconnects, because it may be no primary any more. The next call asks for the map.
    outdated: threading.Event = field(default_factory=threading.Event)
    #: The primary of each slot, as far as it is known. Threads share it, because each write is one step.
    _slots: dict[int, Endpoint] = field(default_factory=dict)
    _nodes: dict[Endpoint, ClusterNode] = field(default_factory=dict)
    #: Nodes that failed and have not answered since.
    _failed: set[Endpoint] = field(default_factory=set)
    _mutex: threading.RLock = field(default_factory=threading.RLock)
    _sleeper: threading.Event = field(default_factory=threading.Event)

    def known(self, key: str) -> ClusterNode | None:
        """Return the node of *key*; None if a node has to be asked for the map first."""
        place = self._slots.get(slot_of(key))
        return None if place is None or self.outdated.is_set() else self._nodes.get(place)

    def close(self) -> None:
        for node in list(self._nodes.values()):
            node.close()

    def after_fork(self) -> None:
        for node in self._nodes.values():
            node.after_fork()
        self._mutex, self._sleeper = threading.RLock(), threading.Event()

    def settle(self, deadline: float) -> bool:
        """Read the replies to releases, and repeat releases whose keys have moved: see `Posts.settle`."""
        done = True
        for place, node in list(self._nodes.items()):
            try:
                done = node.settle(deadline) and done
            except BackendUnavailable as error:
                if not self._prepare_retry(error, place, deadline):
                    raise
                for key in node.lost():
                    if self._slots.get(slot_of(key)) != place:
                        self._repeat_release(node, key, deadline)
                done = False
        return done

    def call(self, key: str, call: Callable[[ClusterNode, float], T], deadline: float) -> T:
        """Call *call* with the node of *key* and a deadline, and return its result."""
        while True:
            place, node = self._node_of(slot_of(key), deadline)
            try:
                answer = call(node, deadline)
            except BackendUnavailable as error:
                failure = error
            else:
                self._failed.discard(place)
                return answer
            if not self._prepare_retry(failure, place, deadline):
                raise self._explained(failure)
            if redirection_in(failure, place):
                self._repeat_release(node, key, deadline)

    def call_each(
        self,
        many: Sequence[One],
        slot: Callable[[One], int],
        call: Callable[[ClusterNode, Sequence[One], float], Sequence[T | None]],
        deadline: float,
        every: bool = False,
    ) -> list[T | None]:
        """Call *call* for *many*, node by node, and return the results; None for an unknown one.

        Raises `BackendUnavailable` if all results are unknown, or with *every* if any is.
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
                    again += numbers if self._prepare_retry(error, place, deadline) else ()
                    continue
                self._failed.discard(place)
                for number, answer in zip(numbers, found, strict=True):
                    answers[number] = answer
            left = again
        unknown = [answer is None for answer in answers]
        if failure is not None and (any(unknown) if every else all(unknown)):
            raise self._explained(failure)
        return answers

    def primaries(self, deadline: float) -> list[tuple[Endpoint, ClusterNode]]:
        """Ask a node for the map, and return all nodes that have slots."""
        self._refresh(deadline)
        return [(place, self._opened(place)) for place in sorted(set(self._slots.values()))]

    def replies(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Return the reply to each of *commands* from the node of its key.

        Raises `BackendUnavailable` if a reply is missing.
        """
        answers = self.call_each(commands, slot_of_command, ClusterNode.replies, deadline, every=True)
        return [reply for (reply,) in filter(None, answers)]

    def _by_place(
        self, slots: Sequence[tuple[int, int]], deadline: float
    ) -> Iterable[tuple[Endpoint, list[int]]]:
        """Group the numbers in *slots*, pairs of a number and its slot, by the nodes of the slots."""
        places: dict[Endpoint, list[int]] = {}
        for number, slot in slots:
            places.setdefault(self._node_of(slot, deadline)[0], []).append(number)
        return places.items()

    def _node_of(self, slot: int, deadline: float) -> tuple[Endpoint, ClusterNode]:
        place = self._slots.get(slot)
        if place is None or place in self._failed or self.outdated.is_set():
            self.outdated.clear()
            try:
                self._refresh(deadline, but=place)
            except BackendUnavailable:
                if place is None:
                    raise
            place = self._slots.get(slot)
        if place is None:
            raise BackendUnavailable(
                f"No node of the Redis Cluster at {self._shown} has the slot {slot}, in which this "
                "lock lies: see CLUSTER INFO there."
            )
        return place, self._opened(place)

    def _prepare_retry(self, failure: BackendUnavailable, place: Endpoint, deadline: float) -> bool:
        """Prepare to repeat a call that failed at *place*. Return False if that would not help.

        This corrects the map of slots. While the slot is being moved, it waits for a moment instead.
        """
        if redirection := redirection_in(failure, place):
            slot, now_at = redirection
            if now_at.host != UNNAMED:
                self._slots[slot] = now_at
            else:
                with suppress(BackendUnavailable):
                    self._refresh(deadline)
            return clock.now() < deadline
        if server_error(failure).startswith(_MIGRATING):
            self._sleeper.wait(_MOVING)
            return clock.now() < deadline
        # A replica may take the node's place. Until the node answers, each call asks for the map first.
        self._failed.add(place)
        with suppress(BackendUnavailable):
            self._refresh(deadline, but=place)
        return place not in self._slots.values()

    def _explained(self, failure: BackendUnavailable) -> BackendUnavailable:
        """Return *failure*, or an error about the whole cluster if the cluster is down."""
        if not server_error(failure).startswith("CLUSTERDOWN"):
            return failure
        explained = BackendUnavailable(
            f"The Redis Cluster at {self._shown} does not serve: {server_error(failure).rstrip('.')}. "
            "See CLUSTER INFO there: where one slot has no primary all stop, unless "
            "cluster-require-full-coverage is no."
        )
        explained.__cause__ = failure
        return explained

    def _opened(self, place: Endpoint) -> ClusterNode:
        with self._mutex:
            if (node := self._nodes.get(place)) is None:
                node = self._nodes[place] = self._make(place)
            return node

    def _repeat_release(self, node: ClusterNode, key: str, deadline: float) -> None:
        """If *node* has a lost release of *key*, repeat it at the node that has *key* now."""
        posted = node.take_lost_release(key)
        if posted is None:
            return
        released = self.call(key, lambda other, by: other.release(posted.request, by), deadline)
        if posted.undone and not released:
            posted.notify(False)

    def _refresh(self, deadline: float, but: Endpoint | None = None) -> None:
        """Ask the nodes, except the one at *but*, for the map of slots, until one answers.

        Close nodes that are no primaries any more. Raises `BackendUnavailable` if no node answers.
        """
        failure: BackendUnavailable | None = None
        for place in dict.fromkeys((*self._nodes, *self._seeds)):
            if place == but:
                continue
            try:
                # Half of the time is left for other nodes if this one does not answer.
                slots = self._opened(place).slots((clock.now() + deadline) / 2)
            except BackendUnavailable as error:
                failure = error
                continue
            # A node that was removed from the cluster may run on, with an empty map.
            if slots:
                self._slots = read_slots(slots, place)
                self._close_others()
                return
        if failure is not None:
            raise failure

    def _close_others(self) -> None:
        """Remove the nodes that are no primaries any more, and close them."""
        with self._mutex:
            gone = {place: self._nodes.pop(place) for place in self._nodes.keys() - self._slots.values()}
        for place, node in gone.items():
            # In a thread, because the node may not answer, and no caller has to wait for that.
            try:
                backend_thread("distlock-redis-closing", self._close_removed, node).start()
            except RuntimeError:
                # This process can start no more threads. The next map of slots is another occasion.
                with self._mutex:
                    self._nodes.setdefault(place, node)

    def _close_removed(self, node: ClusterNode) -> None:
        """Close *node*. Repeat its lost releases at the nodes that have the keys now."""
        deadline = clock.now() + _CLOSING
        with suppress(BackendUnavailable):
            while keys := _undone_releases(node, deadline):
                for key in keys:
                    self._repeat_release(node, key, deadline)
        node.close()


def _undone_releases(node: ClusterNode, deadline: float) -> list[str]:
    """Return the keys whose releases *node* has refused, because other nodes have the keys."""
    try:
        node.settle(deadline)
    except BackendUnavailable:
        return node.lost()
    return []
