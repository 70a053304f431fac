"""A primary dies in the middle of a rush, and its replica takes over."""

from __future__ import annotations

import time

import pytest

from loadtest.redis_cluster import RedisCluster
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Stock, database, started, stock
from tests.fence.test_failover import hear

__all__ = ["database", "stock"]

STOCK = 400
ENOUGH = 20


@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_in_the_middle_of_a_rush(database: str, stock: Stock, own_cluster: RedisCluster, fence: bool) -> None:
    stock.put(STOCK)
    orders = [
        Order(face, database, own_cluster.url, face, fence, ttl=2.0, timeout=5.0)
        for face in ("django", "flask")
    ]
    with started(*orders) as instances:
        for instance in instances:
            instance.tell("rush")
        hear(instances, ENOUGH)
        own_cluster.node_of("stalled:product_1").kill()
        died = time.monotonic()
        hear(instances, ENOUGH)
        print(
            f"Each instance has sold {ENOUGH} more {time.monotonic() - died:.1f} s after the primary's death."
        )
        answers = [answer for instance in instances for answer in iter(instance.says, "done")]
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    sales = stock.sales()
    if fence:
        assert (len(sales), stock.left()) == (STOCK, 0)
    else:
        assert len(sales) >= STOCK
        print(f"Sold without the fence: {len(sales)} of {STOCK}.")
