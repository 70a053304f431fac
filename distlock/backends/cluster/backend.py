"""Locks in a Redis Cluster. A lock is one slot, and so all that belongs to it lies on one node.

Each primary is a `RedisBackend` of its own, with its connections and the one that it pushes to. So a waiter
hears the node that hands its lock over, and that node counts it as a listener, as the scripts want it: what
another node's subscribers hear is not counted, see https://redis.io/docs/latest/commands/publish/.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from distlock import clock
from distlock.backends.base import Acquired, Busy, LockRequest, Queued, Sink
from distlock.backends.cluster.address import ClusterAddress
from distlock.backends.cluster.examining import examine
from distlock.backends.cluster.node import Node, NodeSink
from distlock.backends.cluster.nodes import Nodes
from distlock.backends.cluster.slots import Endpoint, slot_of
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Seen, Sight
from distlock.backends.latches import LatchState
from distlock.backends.optional import Begun
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.inspection import PublishedStatus
from distlock.errors import BackendUnavailable
from distlock.numbers import LONG, check_seconds

T = TypeVar("T")


class ClusterBackend(PublishedStatus):
    """One process's locks in the cluster of which *url* names some nodes: ``redis+cluster://h1,h2:7000``.

    The arguments are those of `RedisBackend`, of each node; *io_timeout* bounds a call over all of them.
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
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
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
        self._begin()
        # Whatever is wrong with any of this is told now.
        self.window = self._make(self._address.places[0]).window

    def __repr__(self) -> str:
        return f"<ClusterBackend {self._address.shown}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink
        self._begin()

    def close(self) -> None:
        with suppress(BackendUnavailable):
            self.withdraw_status(self._by(math.inf))
        nodes = self._nodes
        self._begin()
        nodes.close()

    def after_fork(self) -> None:
        self._nodes.after_fork()
        self._begin()

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        return self._of(request.key, lambda node, by: node.request(request, by), deadline)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._of(request.key, lambda node, by: node.cancel(request, by), deadline)

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._of(request.key, lambda node, by: node.release(request, by), deadline)

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        self._of(request.key, lambda node, by: node.post(request, told, by), deadline)

    def settle(self, deadline: float = math.inf) -> bool:
        return self._nodes.settle(self._by(deadline))

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._of(request.key, lambda node, by: node.downgrade(request, by), deadline)

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return self._of(request.key, lambda node, _: node.raise_fence(request, number))

    def locked(self, key: str) -> bool:
        return self._of(key, lambda node, _: node.locked(key))

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        return self._nodes.of_each(
            requests,
            lambda request: slot_of(request.key),
            lambda node, some, _: node.renew(some),
            self._by(math.inf),
        )

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> list[bool | None]:
        return self._nodes.of_each(
            handed,
            lambda one: slot_of(one[0].key),
            lambda node, some, by: node.acknowledge(some, by),
            self._by(deadline),
        )

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self._of(key, lambda node, by: node.make_latch(key, total, ttl, maker, by), deadline)

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return self._of(key, lambda node, until: node.count_latch_down(key, by, part, life, until), deadline)

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return self._of(key, lambda node, by: node.delete_latch(key, life, by), deadline)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        seen: dict[str, LatchState | None] = {}
        for key in keys:
            (seen[key],) = self._of(key, partial(_look_at_latch, key, watch), deadline)
        return [seen[key] for key in keys]

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        return self._of(key, lambda node, by: node.inspect(key, by), deadline)

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._of(key, lambda node, by: node.break_hold(key, number, by), deadline)

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        return self._of(key, lambda node, by: node.request_release(key, by), deadline)

    def examine(self) -> Iterator[Finding]:
        return examine(self._nodes.primaries(self._by(math.inf)))

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        name, (first, *_) = call.__name__, arguments
        if name in ("acknowledge", "look_at_latches"):
            if len(first) != 1:
                return None
            (first,) = first
        key = first if isinstance(first, str) else first[0].key if isinstance(first, tuple) else first.key
        # Where it is not known, or is another node's now, a thread finds out.
        node = self._nodes.known(key)
        return None if node is None else node.begin(getattr(node, name), *arguments)

    def _of(self, key: str, call: Callable[[Node, float], T], deadline: float = math.inf) -> T:
        return self._nodes.of(key, call, self._by(deadline))

    def _ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Send commands about published status, each to the node of its key."""
        return self._nodes.replies(commands, deadline)

    def _seen(self, processes: Sequence[str], key: str, deadline: float) -> list[Seen]:
        try:
            return super()._seen(processes, key, deadline)
        except BackendUnavailable:
            # A node that is away hides their hosts, and not that they hold the lock or wait.
            return [Seen(process) for process in processes]

    def _make(self, place: Endpoint) -> Node:
        node = Node(self._address.url_of(place), self.process, self._seen, **self._options)
        if self._sink is not None:
            node.open(NodeSink(self._sink, self._doubted))
        return node

    def _begin(self) -> None:
        """Start from nothing: as another process, without a map, and without connections."""
        self.process = secrets.token_hex(8)
        self._has_published = False
        self._doubted = threading.Event()
        self._nodes = Nodes(self._address.shown, self._address.places, self._make, self._doubted)

    def _by(self, deadline: float) -> float:
        return min(deadline, clock.now() + self._io_timeout)


def _look_at_latch(key: str, watch: bool, node: Node, deadline: float) -> list[LatchState | None]:
    return node.look_at_latches([key], watch, deadline)
