"""What can be done to Redis servers with replicas: below Sentinel, and in a cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from loadtest.servers.redis_cluster import ClusterNode, RedisCluster
from loadtest.servers.redis_servers import WatchedRedis, tell
from tests.soak.services.redis_servers import PATIENCE, commands, losing_commands
from tests.soak.services.service import IO_TIMEOUT, PAUSES, TTL, Service, Strike, pause

#: After so many milliseconds of silence a server counts as dead: of one that was killed, and otherwise.
SOON, LATE = 1000, 60_000
#: Seconds after which a cluster has given up to let a replica take over.
GIVEN_UP = 6.0


class Sentinels:
    """The strikes of a `WatchedRedis`."""

    def __init__(self, watched: WatchedRedis) -> None:
        self._watched = watched

    def primary(self, choices: random.Random) -> redis.Redis:
        return redis.Redis(port=self._watched.primary(), socket_timeout=PATIENCE)

    def stop_primary(self, choices: random.Random) -> None:
        child = self._watched.servers[self._watched.primary()]
        child.freeze()
        try:
            pause(choices.choice(PAUSES))
        finally:
            child.thaw()

    def restart_replica(self, choices: random.Random) -> None:
        primary = self._watched.primary()
        port = choices.choice([one for one in self._watched.servers if one != primary])
        self._watched.servers[port].kill()
        self._watched.start_server(port, primary)
        self._settle()

    def fail_over(self, choices: random.Random) -> None:
        former = self._watched.primary()
        self._watched.fail_over()
        self._wait_for_another_than(former)

    def kill_primary(self, choices: random.Random) -> None:
        former = self._watched.primary()
        self._watched.servers[former].kill()
        self._watched.notice(SOON)
        self._wait_for_another_than(former)
        self._watched.notice(LATE)

    def _wait_for_another_than(self, former: int) -> None:
        """Wait until another primary is known to all sentinels, and *former* follows it."""
        watched = self._watched
        sentinel = next(iter(watched.sentinels.values()))
        sentinel.wait_until(lambda: watched.primary() != former)
        if watched.servers[former].process.poll() is not None:
            watched.start_server(former, watched.primary())
        self._settle()

    def _settle(self) -> None:
        watched = self._watched
        sentinel = next(iter(watched.sentinels.values()))
        sentinel.wait_until(lambda: len(watched.replicas()) == len(watched.servers) - 1)
        sentinel.wait_until(lambda: all(str(watched.primary()) in _named(port) for port in watched.sentinels))


def _named(port: int) -> str:
    return tell(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")


@contextmanager
def open_sentinel(directory: Path) -> Iterator[Service]:
    # On a busy machine no server is taken for dead: only one that was killed.
    watched = WatchedRedis(directory, down_after=LATE)
    strikes = Sentinels(watched)
    try:
        yield Service(
            watched.url,
            (
                *commands(strikes.primary),
                Strike("server stopped", strikes.stop_primary, lasts_if_late=IO_TIMEOUT + TTL, skips=True),
                Strike("replica restarted", strikes.restart_replica),
            ),
            (
                *losing_commands(strikes.primary),
                Strike("failover", strikes.fail_over, lasts=IO_TIMEOUT, forgets=True, skips=True),
                Strike("primary killed", strikes.kill_primary, lasts=IO_TIMEOUT, forgets=True, skips=True),
            ),
        )
    finally:
        watched.stop()


class Cluster:
    """The strikes of a `RedisCluster`."""

    def __init__(self, cluster: RedisCluster, names: int) -> None:
        self._cluster = cluster
        self._keys = [f"soak:n{number}" for number in range(names)]

    def primary(self, choices: random.Random) -> ClusterNode:
        return self._cluster.node_of(choices.choice(self._keys))

    def client(self, choices: random.Random) -> redis.Redis:
        return redis.Redis(port=self.primary(choices).port, socket_timeout=PATIENCE)

    def patience(self, milliseconds: int) -> None:
        for node in self._cluster.nodes:
            if node.lives():
                node.tell("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def move(self, choices: random.Random) -> None:
        self._cluster.move(choices.choice(self._keys))
        self._settle()

    def fail_over(self, choices: random.Random) -> None:
        """Let a replica take the place of its primary, which waits until the replica has all its data."""
        replicas = [node for node in self._cluster.nodes if not node.is_primary() and node.replicates()]
        if replicas:
            heir = choices.choice(replicas)
            # The others vote for a replica of a primary only once in twice this time.
            self.patience(SOON)
            heir.tell("CLUSTER", "FAILOVER")
            given_up = time.monotonic() + GIVEN_UP
            assert heir.child is not None
            heir.child.wait_until(lambda: heir.is_primary() or time.monotonic() > given_up)
            self.patience(LATE)
        self._settle()

    def stop_primary(self, choices: random.Random) -> None:
        child = self.primary(choices).child
        assert child is not None
        child.freeze()
        try:
            pause(choices.choice(PAUSES))
        finally:
            child.thaw()
        self._settle()

    def kill_primary(self, choices: random.Random) -> None:
        former = self.primary(choices)
        self.patience(SOON)
        former.kill()
        others = [node for node in self._cluster.nodes if node is not former]
        for node in others:
            assert node.child is not None
            node.child.wait_until(lambda node=node: node.serves() and not self._leads(node, former))
        former.start()
        self._settle()
        self.patience(LATE)

    def _leads(self, node: ClusterNode, other: ClusterNode) -> bool:
        """Return whether *node* takes *other* for the primary of any slot."""
        return any(share[2][1] == other.port for share in node.tell("CLUSTER", "SLOTS"))

    def _settle(self) -> None:
        """Wait until all nodes agree, and each follows a primary, or has a replica or no slot."""
        self._cluster.wait_until(ClusterNode.serves)

        def agree(node: ClusterNode) -> bool:
            return bool(shares(node) == shares(self._cluster.nodes[0]))

        self._cluster.wait_until(agree)


def shares(node: ClusterNode) -> list[tuple[int, int, int]]:
    return sorted((share[0], share[1], share[2][1]) for share in node.tell("CLUSTER", "SLOTS"))


@contextmanager
def open_cluster(directory: Path) -> Iterator[Service]:
    with RedisCluster(directory) as cluster:
        strikes = Cluster(cluster, names=3)
        # On a busy machine no node is taken for dead: only one that was killed.
        strikes.patience(LATE)
        yield Service(
            cluster.url,
            (
                *commands(strikes.client),
                Strike("server stopped", strikes.stop_primary, lasts_if_late=IO_TIMEOUT + TTL, skips=True),
                Strike("slot moved", strikes.move, lasts=IO_TIMEOUT, skips=True),
                Strike("failover", strikes.fail_over, lasts=IO_TIMEOUT, skips=True),
            ),
            (
                *losing_commands(strikes.client),
                Strike("primary killed", strikes.kill_primary, lasts=IO_TIMEOUT, forgets=True, skips=True),
            ),
        )
