"""Two instances of a shop sell out while a primary fails, and its replica takes over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock import clock
from loadtest.servers.redis_cluster import ClusterNode, RedisCluster
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.topologies.rush import Rush, two_instances

__all__ = ["database", "stock"]

STOCK, ENOUGH = 300, 40
KEY = "stalled:product_1"
FAILURES: dict[str, Callable[[ClusterNode, ClusterNode], object]] = {
    "killed": lambda primary, replica: primary.kill(),
    "standing still": lambda primary, replica: primary.stand_still(),
    "taken over from": lambda primary, replica: replica.tell("CLUSTER", "FAILOVER", "TAKEOVER"),
}


@pytest.mark.fault("F23")
@pytest.mark.fault("F23", control=True)
@pytest.mark.parametrize(
    ("failure", "fence"),
    [("killed", True), ("killed", False), ("standing still", True), ("taken over from", True)],
    ids=["killed, fenced", "killed, not fenced", "standing still, fenced", "taken over from, fenced"],
)
def test_all_is_sold_and_with_the_fence_once(
    database: str,
    stock: Stock,
    own_cluster: RedisCluster,
    failure: str,
    fence: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stock.put(STOCK)
    with started(*two_instances(database, own_cluster.url, fence)) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        primary = own_cluster.node_of(KEY)
        replica = own_cluster.replicas[own_cluster.primaries.index(primary)]
        FAILURES[failure](primary, replica)
        began = clock.now()
        answers = rush.end()
        # All was sold without it, and not when it went on.
        assert primary.lives() == (failure == "taken over from")
    sold = len(stock.sales())
    with capsys.disabled():
        gap = f"{rush.longest_gap(began):.3f} s without service"
        print(f"\nRedis Cluster, a primary {failure}: {gap}, {sold} of {STOCK} sold.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert set(stock.sellers()) == {"d", "f"}
    assert own_cluster.node_of(KEY) is not primary
    if fence:
        assert (sold, stock.left()) == (STOCK, 0)
    else:
        assert sold >= STOCK
