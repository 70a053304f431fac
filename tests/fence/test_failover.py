"""A replica is promoted that has not heard of the last hand-offs: the fence holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.redis.proxy import Proxy
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Instance, Stock, database, started, stock
from tests.redis_server import RedisServer, eventually, own_server, running
from tests.stored import hold_key

__all__ = ["database", "own_server", "stock"]

STOCK = 800
ENOUGH = 20
QUEUE = f"{hold_key('stalled:product_1')}:queue"


@pytest.fixture
def replica(own_server: RedisServer) -> Iterator[RedisServer]:
    own_server.client.config_set("repl-diskless-sync-delay", 0)
    yield from running("--replicaof", "127.0.0.1", str(own_server.port))


def follows(replica: RedisServer) -> bool:
    return bool(replica.client.info("replication")["master_link_status"] == "up")


@pytest.fixture
def way(own_server: RedisServer) -> Iterator[Proxy]:
    proxy = Proxy(own_server.port)
    yield proxy
    proxy.close()


other_way = way


@pytest.mark.fault("F20")
def test_between_a_push_and_its_acknowledgement(
    database: str, stock: Stock, own_server: RedisServer, replica: RedisServer, way: Proxy
) -> None:
    stock.put(2)
    eventually(lambda: follows(replica), "the replica follows")
    a, b, c = (
        # A waiter does not ask again meanwhile: held back, its question would be an error.
        Order("django", database, url, name, True, ttl=2.0, timeout=60.0, options={"ack_window": 5.0})
        for url, name in ((own_server.url, "a"), (way.url, "b"), (replica.url, "c"))
    )
    with started(a, b, c) as (before, between, after):
        before.tell("sell after the read")
        assert before.says() == "at after the read"
        between.tell("sell after the read")
        eventually(lambda: replica.client.llen(QUEUE) == 1, "the replica knows that it waits")
        # The replica hears of nothing that is done from here on, nor does anybody hear of an acknowledgement.
        replica.client.replicaof("NO", "ONE")
        way.hold(replies=False, new=True)
        before.tell("go on")
        assert before.says() == "answered 200"
        assert between.says() == "at after the read"
        way.fail_over(replica.port)
        after.tell("sell")
        between.tell("go on")
        assert between.says() == "answered 503 lock_lost"
        assert after.says() == "answered 200"
    assert (stock.sellers(), stock.left()) == ("ac", 0)


@pytest.mark.fault("F20")
@pytest.mark.fault("F20", control=True)
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_in_the_middle_of_a_rush_where_one_instance_follows_late(
    database: str, stock: Stock, replica: RedisServer, way: Proxy, other_way: Proxy, fence: bool
) -> None:
    stock.put(STOCK)
    eventually(lambda: follows(replica), "the replica follows")
    orders = [
        Order("django", database, way.url, "d", fence, ttl=1.0),
        Order("flask", database, other_way.url, "f", fence, ttl=1.0),
    ]
    with started(*orders) as instances:
        for instance in instances:
            instance.tell("rush")
        hear(instances, ENOUGH)
        replica.client.replicaof("NO", "ONE")
        # So many hand-offs, or more, are lost with the old primary.
        hear(instances, ENOUGH)
        way.fail_over(replica.port)
        # Both primaries give the lock out.
        hear(instances, 3 * ENOUGH)
        other_way.fail_over(replica.port)
        answers = [answer for instance in instances for answer in iter(instance.says, "done")]
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    sales = [fence for _, *fence in stock.sales()]
    if fence:
        assert (len(sales), stock.left()) == (STOCK, 0)
        assert sales == sorted(sales)
    else:
        assert len(sales) > STOCK


def hear(instances: list[Instance], sold: int) -> None:
    """Until each of *instances* has sold so many more."""
    for instance in instances:
        left = sold
        while left:
            said = instance.says()
            assert said != "done", "nearly everything is sold"
            left -= said == "answered 200"
