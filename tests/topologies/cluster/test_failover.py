"""A primary fails in the middle of a rush, and its replica takes over."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from loadtest.redis_cluster import ClusterNode, RedisCluster
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Stock, database, started, stock
from tests.fence.test_failover import hear

__all__ = ["database", "stock"]

STOCK = 400
ENOUGH = 20
KEY = "stalled:product_1"
FAILURES: dict[str, Callable[[ClusterNode], None]] = {
    "killed": ClusterNode.kill,
    "standing still": ClusterNode.stand_still,
}


@pytest.mark.parametrize(
    ("failure", "fence"),
    [("killed", True), ("killed", False), ("standing still", True)],
    ids=["killed, fenced", "killed, not fenced", "standing still, fenced"],
)
def test_all_is_sold_and_with_the_fence_once(
    database: str, stock: Stock, own_cluster: RedisCluster, failure: str, fence: bool
) -> None:
    stock.put(STOCK)
    url = own_cluster.url
    orders = [Order(face, database, url, face, fence, ttl=2.0, timeout=5.0) for face in ("django", "flask")]
    with started(*orders) as instances:
        for instance in instances:
            instance.tell("rush")
        hear(instances, ENOUGH)
        primary = own_cluster.node_of(KEY)
        FAILURES[failure](primary)
        began = time.monotonic()
        hear(instances, ENOUGH)
        print(f"{time.monotonic() - began:.1f} s later each instance has sold {ENOUGH} more.")
        answers = [answer for instance in instances for answer in iter(instance.says, "done")]
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert own_cluster.node_of(KEY) is not primary
    sold = len(stock.sales())
    print(f"Sold {'with' if fence else 'without'} the fence: {sold} of {STOCK}.")
    if fence:
        assert (sold, stock.left()) == (STOCK, 0)
    else:
        assert sold >= STOCK
