"""A lock service that forgets everything during a sale, or is changed for another: the fence holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Instance, Stock, database, started
from tests.fence.instances import stock as empty_stock
from tests.redis_server import RedisServer, own_server
from tests.shifted_clock import HOUR, ShiftedRedis, shifted_server
from tests.stored import hold_key
from tests.zookeeper_server import zookeeper_server

__all__ = ["database", "empty_stock", "own_server", "shifted_server", "zookeeper_server"]

#: More than one instance sells before the other one has connected.
STOCK = 600
ENOUGH = 20


@pytest.fixture
def stock(empty_stock: Stock) -> Stock:
    empty_stock.put(STOCK)
    return empty_stock


def until_all_is_sold(instance: Instance) -> list[str]:
    return list(iter(instance.says, "done"))


def listen(instance: Instance, number: int) -> None:
    """Until *number* pieces were sold by it."""
    sold = 0
    while sold < number:
        said = instance.says()
        assert said != "done", "the other one has sold nearly everything"
        sold += said == "answered 200"


def assert_in_order(stock: Stock) -> None:
    sales = [fence for _, *fence in stock.sales()]
    assert (len(sales), stock.left()) == (STOCK, 0)
    assert sales == sorted(sales)


@pytest.mark.fault("F09")
def test_redis_is_killed_and_comes_back_empty_in_the_middle_of_a_sale(
    database: str, stock: Stock, own_server: RedisServer
) -> None:
    orders = [Order(face, database, own_server.url, face[0], True, ttl=1.0) for face in ("django", "flask")]
    with started(*orders) as instances:
        for instance in instances:
            instance.tell("rush")
        listen(instances[0], ENOUGH)
        own_server.restart()
        answers = [answer for instance in instances for answer in until_all_is_sold(instance)]
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert_in_order(stock)
    assert set(stock.sellers()) == {"d", "f"}


def evict_the_lock(server: ShiftedRedis) -> None:
    """Fill a server that makes room for a cache, until the lock is gone."""
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 100_000)
    hold = hold_key("stalled:product_1")
    assert server.client.exists(hold)
    for number in itertools.count():
        server.client.set(f"cache:{number}", "value" * 200)
        if not server.client.exists(hold):
            break
    server.client.config_set("maxmemory", 0)


LOSSES: dict[str, Callable[[ShiftedRedis], object]] = {
    "killed": ShiftedRedis.restart,
    "flushed": lambda server: server.client.flushall(),
    "evicted": evict_the_lock,
    "an hour ahead": lambda server: server.set_clock(HOUR),
}


@pytest.mark.fault("F09", "F12", "F14")
@pytest.mark.fault("F09", "F12", "F14", "F16", control=True)
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_two_that_hold_one_lock_because_redis_forgot_the_first(
    database: str,
    stock: Stock,
    shifted_server: ShiftedRedis,
    lose: Callable[[ShiftedRedis], object],
    fence: bool,
) -> None:
    stock.put(1)
    # Long leases: nobody asks Redis, which has forgotten the first one, before its COMMIT.
    orders = [Order("django", database, shifted_server.url, name, fence, ttl=60.0) for name in "ab"]
    with started(*orders) as (a, b):
        a.tell("sell after the read")
        assert a.says() == "at after the read"
        lose(shifted_server)
        b.tell("sell")
        meanwhile = b.says()
        a.tell("go on")
        finally_ = a.says()
    if fence:
        # The row that the first one holds keeps the second one out, whatever Redis says.
        assert (meanwhile, finally_, stock.sellers()) == ("answered 423 lock_contended", "answered 200", "a")
    else:
        assert (meanwhile, finally_, stock.sellers()) == ("answered 200", "answered 200", "ba")


@pytest.fixture(params=["redis", "zookeeper"])
def another(request: pytest.FixtureRequest, own_server: RedisServer) -> str:
    """The URL of another lock service: another database of the same Redis, or ZooKeeper."""
    if request.param == "redis":
        return own_server.url.replace("/0", "/1")
    return str(request.getfixturevalue("zookeeper_server").url)


@pytest.mark.fault("F42")
def test_an_era_is_rolled_forward_under_load(
    database: str, stock: Stock, own_server: RedisServer, another: str
) -> None:
    # Both instances hold the lock at once.
    old = Order("django", database, own_server.url, "o", True, ttl=10.0)
    new = Order("flask", database, another, "n", True, ttl=10.0, epoch=2)
    with started(old, new) as (before, after):
        before.tell("rush")
        listen(before, ENOUGH)
        after.tell("rush")
        answers = until_all_is_sold(after)
        # The old one goes on asking, and is refused for ever.
        assert "answered 503 lock_lost" in iter(before.says, "done")
    assert answers.count("answered 409") == SHOPPERS
    assert_in_order(stock)
    # From the first one of the new epoch on nothing of the old one is committed.
    sellers = stock.sellers()
    assert sellers == "o" * sellers.count("o") + "n" * sellers.count("n")
    assert sellers.count("o") >= ENOUGH
    assert sellers.count("n") >= 1


@pytest.mark.fault("F42")
def test_an_era_is_rolled_back_under_load(
    database: str, stock: Stock, own_server: RedisServer, another: str
) -> None:
    new = Order("django", database, own_server.url, "n", True, ttl=10.0, epoch=2)
    back = Order("flask", database, another, "o", True, ttl=10.0, epoch=1)
    with started(new, back) as (stays, returns):
        stays.tell("rush")
        listen(stays, ENOUGH)
        returns.tell("rush")
        # A process that goes back to the old lock service is refused, as long as it asks.
        assert [returns.says() for _ in range(ENOUGH)] == ["answered 503 lock_lost"] * ENOUGH
        until_all_is_sold(stays)
    assert_in_order(stock)
    assert set(stock.sellers()) == {"n"}


@pytest.mark.fault("F42", control=True)
def test_without_the_fence_two_lock_services_at_once_sell_pieces_twice(
    database: str, stock: Stock, own_server: RedisServer, another: str
) -> None:
    old = Order("django", database, own_server.url, "o", False, ttl=10.0)
    new = Order("flask", database, another, "n", False, ttl=10.0, epoch=2)
    with started(old, new) as (before, after):
        # The one that takes longer to connect sells first.
        after.tell("rush")
        listen(after, 1)
        before.tell("rush")
        for instance in (after, before):
            until_all_is_sold(instance)
    assert len(stock.sales()) > STOCK
