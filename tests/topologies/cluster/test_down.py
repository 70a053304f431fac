"""A cluster that lacks some slots is told as what it is, and not as a URL to be corrected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.backends.base import Acquired
from distlock.errors import BackendUnavailable
from loadtest.servers.processes import free_port
from loadtest.servers.redis_cluster import RedisCluster
from tests.redis_server import RedisServer, own_server, running
from tests.stored import slot_of
from tests.topologies.cluster.contender import MakeContender, ask

__all__ = ["own_server"]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    yield from running("--cluster-enabled", "yes", "--cluster-port", str(free_port()))


def test_a_slot_that_nobody_has_is_named(server: RedisServer, contender: MakeContender) -> None:
    mine = ask()
    with pytest.raises(BackendUnavailable, match=f"has the slot {slot_of(mine.key)}, .* see CLUSTER INFO"):
        contender(f"redis+cluster://127.0.0.1:{server.port}").request(mine)


def test_one_that_stops_for_the_slots_of_others_says_why(
    server: RedisServer, contender: MakeContender
) -> None:
    mine = ask()
    server.tell("CLUSTER", "ADDSLOTS", str(slot_of(mine.key)))
    one = contender(f"redis+cluster://127.0.0.1:{server.port}")
    for call in (one.request, lambda mine: one.renew([mine])):
        with pytest.raises(BackendUnavailable, match=r"CLUSTERDOWN.*cluster-require-full-coverage") as told:
            call(mine)
        assert "redis+cluster://" not in str(told.value)


def test_a_server_that_is_in_no_cluster_is_told(own_server: RedisServer, contender: MakeContender) -> None:
    with pytest.raises(BackendUnavailable, match=r"It is no node of a cluster: write redis://"):
        contender(f"redis+cluster://127.0.0.1:{own_server.port}").request(ask())


def test_a_host_of_the_url_that_was_taken_out_of_the_cluster_is_passed_over(
    server: RedisServer, cluster: RedisCluster, contender: MakeContender
) -> None:
    one = contender(cluster.url.replace("//", f"//127.0.0.1:{server.port},"))
    mine = ask()
    assert isinstance(one.request(mine), Acquired)
    assert one.release(mine)
