"""What operators see in a cluster, and do there: its nodes are as one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import distlock
from distlock.backends.base import LockRequest
from distlock.backends.inspectable import SeenProcess, StatusRow
from distlock.operate import break_lock
from loadtest.servers.processes import free_port
from loadtest.servers.redis_cluster import SLOTS, RedisCluster
from tests.cli.conftest import Run, environment, prefix, redis_server, run, until
from tests.redis_server import RedisServer, eventually, running
from tests.stored import FORMAT, slot_of
from tests.topologies.cluster.contender import Contender, MakeContender, ask, some_key

__all__ = ["environment", "prefix", "redis_server", "run"]

LIFE = 600.0


@pytest.fixture
def clients(cluster: RedisCluster, prefix: str) -> Iterator[Callable[..., distlock.Locks]]:
    with ExitStack() as closing:

        def make(**options: Any) -> distlock.Locks:
            locks = distlock.connect(cluster.url, prefix=prefix, **options)
            closing.callback(locks.close)
            return locks

        yield make


def on_each_primary(cluster: RedisCluster, prefix: str) -> list[str]:
    """A name for each."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < len(cluster.primaries):
        number += 1
        names.setdefault(cluster.node_of(f"{prefix}:product_{number}").port, f"product_{number}")
    return list(names.values())


def mine(one: Contender) -> LockRequest:
    """As the engine asks: the token begins with the process."""
    asked = ask(some_key())
    return LockRequest(asked.key, one.process + asked.token, LIFE, 1)


def test_what_lies_on_all_primaries_is_listed_as_that_of_one_process(
    cluster: RedisCluster, prefix: str, clients: Callable[..., distlock.Locks]
) -> None:
    holder, look, names = clients(), clients(), on_each_primary(cluster, prefix)
    with holder.lock(*names):
        until(lambda: {one.name for one in look.list()} == {*names})
        assert len({one.party.process for one in look.list()}) == 1
        parties = [look.inspect(name).holder for name in names]
    assert all(party is not None and party.host for party in parties)
    until(lambda: not list(look.list()))


def test_who_is_broken_or_asked_hears_it_from_the_node_where_it_listens(
    cluster: RedisCluster, clients: Callable[..., distlock.Locks], prefix: str
) -> None:
    lost: list[str] = []
    here, there, _ = on_each_primary(cluster, prefix)
    # It would find out by itself after a third of that.
    holder = clients(ttl=LIFE, max_hold=600, on_lost=lambda grant, why: lost.append(why))
    other = clients(ttl=LIFE)
    with other.lock(there):
        assert holder.lock(there).acquire(timeout=0.2) is None, "it has waited, and listens there since"
    grant = holder.lock(here).acquire()
    assert grant is not None
    assert other.request_release(here)
    eventually(lambda: grant.release_requested, "the holder is asked")
    assert break_lock(other.namespace, other.inspect(here), by="ann")
    eventually(lambda: grant.lost, "the holder is told")
    eventually(lambda: len(lost) == 1, "so is the site")


def test_a_slot_that_has_moved_is_followed(cluster: RedisCluster, contender: MakeContender) -> None:
    one, look = contender(cluster.url), contender(cluster.url)
    asked = mine(one)
    number = one.hold(asked).number
    assert look.inspect(asked.key).number == number
    cluster.move(asked.key)
    assert look.inspect(asked.key).number == number
    cluster.move(asked.key)
    assert look.request_release(asked.key)
    cluster.move(asked.key)
    assert look.break_hold(asked.key, number)
    assert one.renew([asked]) == [False]


def test_so_is_what_processes_say(cluster: RedisCluster, contender: MakeContender) -> None:
    one, look, key = contender(cluster.url), contender(cluster.url), some_key()
    one.announce("web1", 1, [StatusRow(key, "", 1e9)], [], LIFE)
    assert [seen.pid for seen in look.announced(key)] == [1]
    slot = cluster.nodes[0].tell("CLUSTER", "KEYSLOT", f"{FORMAT}:processes")
    # The cluster of the tests moves locks: this one lies in the slot of the list of processes.
    key_there = next(name for number in range(10**6) if slot_of(name := f"x{number}") == slot)
    cluster.move(key_there)
    assert [seen.pid for seen in look.announced(key)] == [1]
    assert one.announce("web1", 2, [], [], LIFE)
    assert [seen.pid for seen in look.announced(key)] == [2]


@pytest.fixture
def small() -> Iterator[RedisServer]:
    """A cluster of one node, which goes on without the slots that it lacks."""
    options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    for server in running(*options, "--cluster-require-full-coverage", "no"):
        server.tell("CLUSTER", "ADDSLOTSRANGE", "0", str(SLOTS - 1))
        eventually(lambda server=server: "cluster_state:ok" in said(server), "it serves")
        yield server


def take_away(server: RedisServer, key: bytes) -> None:
    server.tell("CLUSTER", "DELSLOTS", str(server.client.execute_command("CLUSTER", "KEYSLOT", key)))


def said(server: RedisServer) -> str:
    return str(server.client.execute_command("CLUSTER", "INFO"))  # type: ignore[no-untyped-call]


def test_what_is_missing_is_told_and_does_not_hide_the_holder(
    small: RedisServer, contender: MakeContender
) -> None:
    one, look = (contender(f"redis+cluster://127.0.0.1:{small.port}") for _ in range(2))
    asked = mine(one)
    number = one.hold(asked).number
    one.announce("web1", 1, [StatusRow(asked.key, "", 1e9)], [], LIFE)
    assert [(seen.process, seen.pid) for seen in look.announced("")] == [(one.process, 1)]
    take_away(small, f"dl:2:process:{one.process}".encode())
    with pytest.raises(distlock.BackendUnavailable, match="CLUSTER INFO"):
        list(look.announced(""))
    sight = look.inspect(asked.key)
    assert (sight.holder, sight.number) == (SeenProcess(one.process), number)
    assert look.break_hold(asked.key, number)


def test_the_doctor_looks_at_each_primary(cluster: RedisCluster, run: Run) -> None:
    odd = cluster.primaries[1]
    odd.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        found = json.loads(run("doctor", "--json", "--url", cluster.url).output)
    finally:
        odd.tell("CONFIG", "SET", "maxmemory-policy", "noeviction")
    about = {one["about"]: one for one in found}
    assert (about["cluster"]["level"], about["cluster"]["said"]) == (
        "ok",
        f"cluster_state is ok, and {SLOTS} of {SLOTS} slots are served.",
    )
    assert (about["coverage"]["level"], about["rights"]["level"]) == ("warning", "ok")
    # What is alike everywhere is said once.
    assert [one["about"] for one in found].count("persistence") == 1
    evicting = [one["said"] for one in found if one["about"] == "eviction" and one["level"] == "warning"]
    assert len(evicting) == 1
    assert evicting[0].startswith(f"127.0.0.1:{odd.port}: maxmemory-policy is allkeys-lru")


def test_the_doctor_finds_slots_that_nobody_serves_and_a_right_that_is_missing(
    small: RedisServer, run: Run
) -> None:
    take_away(small, f"{FORMAT}:processes".encode())
    small.tell("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-publish")
    url = f"redis+cluster://ann:pw@127.0.0.1:{small.port}"
    found = {one["about"]: one for one in json.loads(run("doctor", "--json", "--url", url).output)}
    assert (found["push"]["level"], found["cluster"]["level"]) == ("error", "error")
    assert f"{SLOTS - 1} of {SLOTS} slots" in found["cluster"]["said"]
    assert "coverage" not in found
