"""``distlock doctor``: what is wrong is found, and each finding has its remedy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import distlock
from loadtest.servers.processes import free_port
from tests.backend_class import new_backend
from tests.cli.conftest import Run
from tests.redis_server import RedisServer, eventually, running
from tests.zookeeper_server import ZooKeeperServer

Found = dict[str, tuple[str, str, str]]


@pytest.fixture
def examine(run: Run) -> Callable[..., Found]:
    def examine(*words: str) -> Found:
        found = json.loads(run("doctor", "--json", *words).output)
        # An error of the lock service brings its remedy with it.
        found_by_us = [one for one in found if one["about"] != "reachable"]
        assert all(bool(one["remedy"]) != (one["level"] == "ok") for one in found_by_us)
        return {one["about"]: (one["level"], one["said"], one["remedy"]) for one in found}

    return examine


@pytest.fixture
def careful_server() -> Iterator[RedisServer]:
    yield from running("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def replica(own_server: RedisServer) -> Iterator[RedisServer]:
    yield from running("--replicaof", "127.0.0.1", str(own_server.port))


def test_a_server_that_is_set_up_well_has_no_warning(run: Run, careful_server: RedisServer) -> None:
    result = run("doctor", "--strict", "--url", careful_server.url)
    assert result.exit_code == 0, result.output
    levels = [line.split()[0] for line in result.output.splitlines()]
    assert set(levels) == {"ok"}
    assert len(levels) >= 7
    # Nothing stays behind but what the next fence needs, and that ends by itself.
    left = careful_server.client.keys("dl:*distlock-doctor*")
    assert all(careful_server.client.pttl(key) > 0 for key in left)


@pytest.mark.fault("F14")
def test_what_may_lose_locks_is_found(examine: Callable[..., Found], own_server: RedisServer) -> None:
    own_server.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    found = examine("--url", own_server.url)
    assert found["eviction"][:2] == (
        "warning",
        "maxmemory-policy is allkeys-lru: when its memory is full the server may throw locks away.",
    )
    assert (found["persistence"][0], found["clock"][0]) == ("warning", "ok")
    own_server.tell("CONFIG", "SET", "maxclients", "60")
    assert examine("--url", own_server.url)["connections"][0] == "warning"


def test_an_older_version_that_is_at_work_is_found(
    examine: Callable[..., Found], own_server: RedisServer
) -> None:
    now = own_server.client.time()[0]
    own_server.client.hset("dl:1:processes", "0123456789abcdef", now - 3600)
    assert "format" not in examine("--url", own_server.url)
    own_server.client.hset("dl:1:processes", "fedcba9876543210", now + 6)
    level, said, _ = examine("--url", own_server.url)["format"]
    assert (level, "Neither version keeps the other out" in said) == ("error", True)


def test_a_replica_has_no_locks(
    run: Run, examine: Callable[..., Found], own_server: RedisServer, replica: RedisServer
) -> None:
    eventually(lambda: replica.client.info()["role"] == "slave", "it is a replica")
    eventually(lambda: own_server.client.info()["connected_slaves"] == 1, "the primary has it")
    level, said, _ = examine("--url", own_server.url)["replication"]
    assert (level, said.startswith("Its replicas: 1. ")) == ("warning", True)
    result = run("doctor", "--url", replica.url)
    assert result.exit_code == 1
    assert "primary" in result.output


@pytest.fixture
def node() -> Iterator[RedisServer]:
    """Of a cluster."""
    yield from running("--cluster-enabled", "yes", "--cluster-port", str(free_port()))


def test_a_node_of_a_cluster_is_no_server_of_its_own(
    node: RedisServer,
) -> None:
    """The doctor's own lock may be one of those that this node serves."""
    with closing(new_backend(node.url)) as backend:
        (told,) = (finding for finding in backend.examine() if finding.about == "cluster")
    assert (told.level, "redis+cluster://" in str(told.remedy)) == ("error", True)


def test_a_user_that_may_not_look_gets_what_it_may(
    examine: Callable[..., Found], own_server: RedisServer
) -> None:
    page = Path(__file__).parents[2] / "docs/reference/backends/redis.md"
    (line,) = re.findall(r"ACL SETUSER shop on >password [^`]*", page.read_text("utf-8"))
    own_server.tell(*line.split())
    found = examine("--url", own_server.url.replace("//", "//shop:password@"))
    assert (found["rights"][0], found["server"][0]) == ("ok", "warning")
    own_server.tell("ACL", "SETUSER", "shop", "-eval", "-evalsha")
    found = examine("--url", own_server.url.replace("//", "//shop:password@"))
    assert found["reachable"][0] == "error"


def test_a_directory_is_looked_at(examine: Callable[..., Found], tmp_path: Path) -> None:
    with closing(distlock.connect(tmp_path.as_uri())) as locks, locks.lock("product_1"):
        found = examine("--url", tmp_path.as_uri())
    assert found["rights"][0] == "ok"
    assert str(tmp_path) in found["hosts"][1]
    left = os.statvfs(tmp_path)
    assert found["space"][0] == (
        "ok" if left.f_bavail * left.f_frsize > 64 << 20 and left.f_favail > 10_000 else "warning"
    )


def test_an_ensemble_is_looked_at(
    examine: Callable[..., Found], zookeeper_server: ZooKeeperServer, prefix: str
) -> None:
    url = zookeeper_server.url
    with closing(distlock.connect(f"{url}/{prefix}")) as locks, locks.lock("product_1"):
        found = examine("--url", f"{url}/{prefix}")
    assert (found["rights"][0], found["session"][0]) == ("ok", "ok")
    assert (found["ensemble"][0], found["session"][1].endswith("ttl is 10 s.")) == ("warning", True)


@pytest.mark.attack("A37")
def test_a_server_that_is_away_is_an_error_without_a_secret(run: Run) -> None:
    result = run("doctor", "--url", "redis://:secret@127.0.0.1:1/0")
    assert result.exit_code == 1
    assert "error    reachable" in result.output
    assert "secret" not in result.output
    assert "->" not in result.output, "the error itself says what to do"
