"""Locks in a Redis Cluster. All keys of a lock are in one slot, and so on one node.

Each primary has a `RedisBackend`, with its own connections and subscription. So a waiter subscribes at the
node that hands its lock off. The scripts need the number of subscribers, and a node counts only its own: see
https://redis.io/docs/latest/commands/publish/.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import MethodType
from typing import Any, TypeVar

from distlock.backends.base import Acquired, Busy, LockRequest, Queued, Sink
from distlock.backends.cluster.nodes import SLOTS, ClusterNode, ClusterNodes, NodeSink, slot_of
from distlock.backends.inspectable import Finding, KeyState, SeenProcess
from distlock.backends.latches import LatchState
from distlock.backends.protocols import Begun
from distlock.backends.redis.address import ClusterAddress, Endpoint
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.health import Send, config_of, info_in, over_several
from distlock.backends.redis.inspection import RedisStatus
from distlock.backends.redis.scripts import channel_of
from distlock.errors import BackendUnavailable
from distlock.numbers import MOST_SECONDS, check_seconds

T = TypeVar("T")


class ClusterBackend(RedisStatus):
    """One process's locks in the cluster of which *url* names some nodes: ``redis+cluster://h1,h2:7000``.

    The arguments are those of `RedisBackend`, for each node. If a call asks several nodes, *io_timeout*
    bounds the whole call.
    """

    capabilities = RedisBackend.capabilities

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
        replicas: int | None = None,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=MOST_SECONDS)
        self._address = ClusterAddress(url)
        self._options: dict[str, Any] = {
            "io_timeout": io_timeout,
            "max_connections": max_connections,
            "ack_window": ack_window,
            "fence_ttl": fence_ttl,
            "client_name": client_name,
            "credential_provider": credential_provider,
            "replicas": replicas,
        }
        self._sink: Sink | None = None
        self._start_anew()
        # Making a node reports wrong options now.
        self.window = self._make(self._address.places[0]).window

    def __repr__(self) -> str:
        return f"<ClusterBackend {self._address.shown}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        self._start_anew()

    def close(self) -> None:
        with suppress(BackendUnavailable):
            self.withdraw_status()
        nodes = self._nodes
        self._start_anew()
        nodes.close()

    def after_fork(self) -> None:
        self._nodes.after_fork()
        self._start_anew()

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        return self._call(request.key, lambda node, by: node.request(request, by), deadline)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._call(request.key, lambda node, by: node.cancel(request, by), deadline)

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._call(request.key, lambda node, by: node.release(request, by), deadline)

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        self._call(request.key, lambda node, by: node.post(request, notify, by), deadline)

    def settle(self, deadline: float = math.inf) -> bool:
        return self._nodes.settle(self._by(deadline))

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._call(request.key, lambda node, by: node.downgrade(request, by), deadline)

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return self._call(request.key, lambda node, _: node.raise_fence(request, number))

    def locked(self, key: str) -> bool:
        return self._call(key, lambda node, _: node.locked(key))

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        return self._nodes.call_each(
            requests,
            lambda request: slot_of(request.key),
            lambda node, some, _: node.renew(some),
            self._by(math.inf),
        )

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> list[bool | None]:
        return self._nodes.call_each(
            handed,
            lambda one: slot_of(one[0].key),
            lambda node, some, by: node.acknowledge(some, by),
            self._by(deadline),
        )

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self._call(key, lambda node, by: node.make_latch(key, total, ttl, maker, by), deadline)

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return self._call(
            key, lambda node, until: node.count_latch_down(key, by, part, life, until), deadline
        )

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return self._call(key, lambda node, by: node.delete_latch(key, life, by), deadline)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        def look(key: str) -> LatchState | None:
            (state,) = self._call(key, lambda node, by: node.look_at_latches([key], watch, by), deadline)
            return state

        return [look(key) for key in keys]

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        return self._call(key, lambda node, by: node.inspect(key, by), deadline)

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._call(key, lambda node, by: node.break_hold(key, number, by), deadline)

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        return self._call(key, lambda node, by: node.request_release(key, by), deadline)

    def examine(self) -> Iterator[Finding]:
        primaries = self._nodes.primaries(self._by(math.inf))
        return over_several({str(place): list(_node_findings(node)) for place, node in primaries})

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        name, (first, *_) = call.__name__, arguments
        if name in ("acknowledge", "look_at_latches"):
            if len(first) != 1:
                return None
            (first,) = first
        key = first if isinstance(first, str) else first[0].key if isinstance(first, tuple) else first.key
        # If the node is unknown, or may have lost the key, a thread makes the call.
        node = self._nodes.known(key)
        return None if node is None else node.begin(getattr(node, name), *arguments)

    def _call(self, key: str, call: Callable[[ClusterNode, float], T], deadline: float = math.inf) -> T:
        return self._nodes.call(key, call, self._by(deadline))

    def _ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Send *commands*, which read or write published status, each to the node of its key."""
        return self._nodes.replies(commands, deadline)

    def _seen_processes(self, processes: Sequence[str], key: str, deadline: float) -> list[SeenProcess]:
        try:
            return super()._seen_processes(processes, key, deadline)
        except BackendUnavailable:
            # The queue is known. While a node is away, only the processes' status is unknown.
            return [SeenProcess(process) for process in processes]

    def _make(self, place: Endpoint) -> ClusterNode:
        node = ClusterNode(self._address.url_of(place), self.process, self._seen_processes, **self._options)
        if self._sink is not None:
            node.open(NodeSink(self._sink, self._nodes.outdated))
        return node

    def _start_anew(self) -> None:
        """Take a new process id, and forget the map of slots and all connections."""
        self.process = secrets.token_hex(8)
        self._has_published = False
        self._nodes = ClusterNodes(self._address.shown, self._address.places, self._make)


def _node_findings(node: ClusterNode) -> Iterator[Finding]:
    try:
        yield from _cluster_findings(node.send)
        yield from node.examine()
    except BackendUnavailable as error:
        remedy = "Start it, or let a replica take its place: until then its slots have no locks."
        yield Finding("error", "primary", str(error), remedy)


def _cluster_findings(send: Send) -> Iterator[Finding]:
    if send("PUBLISH", channel_of("doctor"), "") is None:
        said = "This user may not publish, so nobody hears that a lock is free."
        yield Finding(
            "error", "push", said, "Give it the rights of the page 'The redis backend', on each node."
        )
    info = info_in(send("CLUSTER", "INFO"))
    if info:
        served = info.get("cluster_slots_ok", "?")
        said = f"cluster_state is {info.get('cluster_state')}, and {served} of {SLOTS} slots are served."
        if info.get("cluster_state") == "ok" and served == str(SLOTS):
            yield Finding("ok", "cluster", said)
        else:
            yield Finding("error", "cluster", said, "Look into CLUSTER NODES there which primaries are away.")
    if config_of(send, "cluster-require-full-coverage") == "yes":
        yield Finding(
            "warning",
            "coverage",
            "cluster-require-full-coverage is yes: one slot that nobody serves stops all locks.",
            "Set cluster-require-full-coverage no on each node: the locks of the other slots go on.",
        )
