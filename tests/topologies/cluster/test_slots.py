"""Where a lock lies, by Redis's own reckoning, and calls to several nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

import distlock
from distlock import clock
from distlock.backends.cluster.nodes import ClusterNode, read_slots, redirection_in, slot_of
from distlock.backends.redis.address import Endpoint
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.scripts import hold_key
from distlock.errors import BackendUnavailable
from loadtest.servers.redis_cluster import RedisCluster
from tests.stored import command
from tests.topologies.cluster.contender import MakeContender

NAMES = ["shop/product_1", "a", "{", "}{", "ä", "x" * 400, "shop/käse {1}", "%7E~"]


@pytest.mark.attack("A14")
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_slot_of_all_keys_of_the_lock(cluster: RedisCluster, name: str) -> None:
    keys = [hold_key(name), f"{hold_key(name)}:queue", f"{hold_key(name)}:fence"]
    assert {cluster.nodes[0].tell("CLUSTER", "KEYSLOT", key) for key in keys} == {slot_of(name)}


@pytest.mark.attack("A14", control=True)
def test_a_name_in_braces_as_it_is_steers_the_keys_of_a_lock_apart(cluster: RedisCluster) -> None:
    def take(name: str) -> object:
        keys = [f"lock:{{{name}}}", f"lock:{{{name}}}:queue"]
        return cluster.node_of("1").client.eval("return 1", len(keys), *keys)

    assert take("1") == 1
    with pytest.raises(redis.ResponseError, match="same slot"):
        take("}{")


def test_each_slot_has_the_primary_that_the_cluster_says(cluster: RedisCluster) -> None:
    asked = cluster.nodes[5].port
    node = ClusterNode(f"redis://127.0.0.1:{asked}", "", lambda *_: [])
    slots = read_slots(node.slots(clock.now() + 30), Endpoint("127.0.0.1", asked))
    node.close()
    assert set(slots.values()) == {Endpoint("127.0.0.1", node.port) for node in cluster.primaries}
    for name in NAMES:
        assert slots[slot_of(name)].port == cluster.node_of(name).port


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("MOVED 7 10.0.0.1:7000", (7, Endpoint("10.0.0.1", 7000))),
        ("MOVED 7 fe80::1:7000", (7, Endpoint("fe80::1", 7000))),
        ("MOVED 7 :7000", (7, Endpoint("asked", 7000))),
        ("ASK 7 10.0.0.1:7000", None),
        ("ERR no MOVED 7 10.0.0.1:7000", None),
    ],
)
def test_a_redirection_is_read(said: str, place: tuple[int, Endpoint] | None) -> None:
    error = BackendUnavailable("It can't be used.")
    error.__cause__ = ReplyError(said)
    assert redirection_in(error, Endpoint("asked", 1)) == place


def test_what_only_quotes_a_redirection_is_none() -> None:
    assert redirection_in(BackendUnavailable("MOVED 7 10.0.0.1:7000"), Endpoint("asked", 1)) is None


def test_of_several_answers_none_may_be_missing(
    cluster: RedisCluster, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, replies = contender(cluster.url), ClusterNode.replies
    asked, until = [command("HGET", f"x{number}", "") for number in range(50)], clock.now() + 60
    assert one._ask(asked, until) == [None] * 50
    ports: set[int] = set()

    def fails_at_one(node: ClusterNode, commands: Sequence[bytes], deadline: float) -> list[tuple[Any]]:
        ports.add(node._address.port)
        if node._address.port == cluster.primaries[1].port:
            raise distlock.BackendUnavailable("away")
        return replies(node, commands, deadline)

    monkeypatch.setattr(ClusterNode, "replies", fails_at_one)
    with pytest.raises(distlock.BackendUnavailable, match="away"):
        one._ask(asked, until)
    assert len(ports) == len(cluster.primaries)
