"""A private Redis Cluster: three primaries with a replica each, on free ports of the loopback."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from distlock.backends.cluster.nodes import slot_of
from distlock.backends.redis.scripts import hold_key
from loadtest.servers.processes import ChildProcess, StackError, free_port, thread_states

SLOTS = 16384
PRIMARIES = 3
#: After this many milliseconds without an answer, a primary counts as dead.
NODE_TIMEOUT = 1000


class ClusterNode:
    """A server of a Redis Cluster, with a client of its own."""

    def __init__(self, directory: Path, server: str) -> None:
        self.port, self._bus = free_port(), free_port()
        self.folder = directory / f"redis-{self.port}"
        self._server = server
        self.child: ChildProcess | None = None
        self.client = Redis(
            port=self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0), decode_responses=True
        )

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        command = [self._server, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--cluster-enabled", "yes", "--cluster-port", str(self._bus), "--save", ""]
        command += ["--cluster-node-timeout", str(NODE_TIMEOUT), "--cluster-replica-validity-factor", "0"]
        self.child = ChildProcess(f"redis-{self.port}", command, self.folder / "redis.log")
        self.child.wait_until(lambda: self.says("PING", True))

    def tell(self, *words: object) -> Any:
        """Send a command, as Redis's manual writes it, and return the reply."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    def says(self, command: str, *expected: object) -> bool:
        """Return whether the answer to *command* is one of *expected*, or contains one of them."""
        try:
            answer = self.tell(*command.split())
        except RedisError:
            return False
        return any(one == answer or (isinstance(answer, str) and str(one) in answer) for one in expected)

    def meet(self, other: ClusterNode) -> None:
        self.tell("CLUSTER", "MEET", "127.0.0.1", other.port, other._bus)

    @property
    def name(self) -> str:
        return str(self.tell("CLUSTER", "MYID"))

    def serves(self) -> bool:
        return self.says("CLUSTER INFO", "cluster_state:ok")

    def is_primary(self) -> bool:
        return bool(self.client.info("replication")["role"] == "master")

    def replicates(self) -> bool:
        """Return whether the node follows its primary, or a replica follows it."""
        found = self.client.info("replication")
        return bool(found["connected_slaves"] or found.get("master_link_status") == "up")

    def send(self, keys: list[str], other: ClusterNode) -> None:
        self.tell("MIGRATE", "127.0.0.1", other.port, "", 0, 5000, "KEYS", *keys)

    def kill(self) -> None:
        """End the node at once, as a power cut does."""
        assert self.child is not None
        self.child.kill()

    def stand_still(self) -> None:
        """Make the node hang until it is stopped."""
        assert self.child is not None
        self.child.freeze()

    def lives(self) -> bool:
        """Return whether any thread of the node is neither ended nor stopped."""
        assert self.child is not None
        return any(state not in "TZX" for state in thread_states(self.child.process.pid))

    def stop(self) -> None:
        self.client.close()
        if self.child is not None:
            self.child.stop()


class RedisCluster:
    """Three primaries with a replica each. The ``with`` starts them, and leaving it ends them."""

    def __init__(self, directory: Path) -> None:
        server = shutil.which("redis-server")
        if not server:
            raise StackError(
                "redis-server is not installed. Run: apt-get install redis-server, or scripts/demo."
            )
        self.nodes = [ClusterNode(directory, server) for _ in range(2 * PRIMARIES)]
        self.primaries, self.replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]

    @property
    def url(self) -> str:
        """A URL with two of the nodes. A client learns the other nodes from them."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes[:2])}"

    def __enter__(self) -> RedisCluster:
        with contextlib.ExitStack() as stop:
            for node in self.nodes:
                stop.callback(node.stop)
                node.start()
            self._join()
            self._stop = stop.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()

    def _join(self) -> None:
        share = -(-SLOTS // PRIMARIES)
        for number, node in enumerate(self.primaries):
            last = min((number + 1) * share, SLOTS) - 1
            node.tell("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        for number, node in enumerate(self.nodes, 1):
            # Without this, all nodes would begin with one epoch, and have to agree on different ones first.
            node.tell("CLUSTER", "SET-CONFIG-EPOCH", number)
            self.nodes[0].meet(node)
        self.wait_until(lambda node: node.says("CLUSTER INFO", f"cluster_known_nodes:{len(self.nodes)}"))
        for replica, primary in zip(self.replicas, self.primaries, strict=True):
            replica.tell("CLUSTER", "REPLICATE", primary.name)
        self.wait_until(ClusterNode.serves)
        self.wait_until(ClusterNode.replicates)

    def node_of(self, key: str) -> ClusterNode:
        """Return the primary that has the lock *key*."""
        slot = slot_of(key)
        for node in self.nodes:
            if node.serves():
                shares = node.tell("CLUSTER", "SLOTS")
                port = next(one[2][1] for one in shares if one[0] <= slot <= one[1])
                return next(node for node in self.nodes if node.port == port)
        raise StackError("No node of the Redis Cluster serves.")

    def move(self, key: str) -> None:
        """Move the slot of the lock *key*, with all its keys, to another primary."""
        with self.moving(key):
            pass

    @contextlib.contextmanager
    def moving(self, key: str) -> Iterator[None]:
        """Move the slot of the lock *key*. During the block, only the lock's fence has been moved."""
        slot, source = slot_of(key), self.node_of(key)
        target = next(
            node for node in self.nodes if node is not source and node.serves() and node.is_primary()
        )
        target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.name)
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", target.name)
        source.send([f"{hold_key(key)}:fence"], target)
        yield
        while keys := source.tell("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.send(keys, target)
        for node in (target, source, *(one for one in self.nodes if one.is_primary())):
            node.tell("CLUSTER", "SETSLOT", slot, "NODE", target.name)

    def wait_until(self, ready: Callable[[ClusterNode], bool]) -> None:
        """Wait until each node is *ready*."""
        for node in self.nodes:
            assert node.child is not None
            node.child.wait_until(partial(ready, node))
