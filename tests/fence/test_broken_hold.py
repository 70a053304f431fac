"""An operator breaks the lock of a holder that lives: with the fence nothing is sold twice."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import distlock
from distlock.operate import break_lock
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Stock, database, started, stock
from tests.redis_server import RedisServer, redis_server
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

__all__ = ["database", "redis_server", "stock", "zookeeper_server"]

STOCK = 120
#: Fewer broken holds tell nothing. For rows as locks see `tests/backends/database`.
ENOUGH = 20


@pytest.fixture(params=["redis", "zookeeper", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the lock service."""
    match request.param:
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis_server")
            return redis.url
        case "zookeeper":
            ensemble: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
            return f"{ensemble.url}/{secrets.token_hex(4)}"
    return f"file://{tmp_path}/locks"


@pytest.fixture
def operator(url: str) -> Iterator[distlock.Locks]:
    locks = distlock.connect(url, prefix="stalled")
    yield locks
    locks.close()


def broken(operator: distlock.Locks) -> bool:
    return break_lock(operator.namespace, operator.inspect("product_1"), by="the test")


@pytest.mark.attack("A33")
def test_breaking_again_and_again_during_a_sale(
    database: str, stock: Stock, url: str, operator: distlock.Locks
) -> None:
    stock.put(STOCK)
    orders = [Order(face, database, url, face[0], True, ttl=10.0) for face in ("django", "flask")]
    over, counted = threading.Event(), 0

    def hammer() -> None:
        nonlocal counted
        while not over.wait(0.005):
            counted += broken(operator)

    with started(*orders) as instances:
        for instance in instances:
            instance.tell("rush")
        breaking = threading.Thread(target=hammer)
        breaking.start()
        try:
            answers = [answer for instance in instances for answer in iter(instance.says, "done")]
        finally:
            over.set()
            breaking.join(30)
    assert counted >= ENOUGH
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    sales = [fence for _, *fence in stock.sales()]
    assert (len(sales), stock.left()) == (STOCK, 0)
    assert sales == sorted(sales)


@pytest.mark.parametrize("url", ["redis"], indirect=True)
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_the_broken_one_goes_on_before_it_is_told(
    database: str, stock: Stock, url: str, operator: distlock.Locks, fence: bool
) -> None:
    stock.put(1)
    # It has never waited, so it does not listen, and it renews in 20 seconds.
    orders = [Order("django", database, url, name, fence, ttl=60.0) for name in "ab"]
    with started(*orders) as (a, b):
        a.tell("sell before the fence" if fence else "sell after the read")
        a.says()
        assert broken(operator)
        b.tell("sell")
        meanwhile = b.says()
        a.tell("go on")
        finally_ = a.says()
    if fence:
        assert (meanwhile, finally_, stock.sellers()) == ("answered 200", "answered 503 lock_lost", "b")
    else:
        assert (meanwhile, finally_, stock.sellers()) == ("answered 200", "answered 200", "ba")


@pytest.mark.attack("A33")
@pytest.mark.attack("A33", control=True)
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_the_broken_one_commits_after_the_next_one_has_read(
    database: str, stock: Stock, url: str, operator: distlock.Locks, fence: bool
) -> None:
    stock.put(1)
    orders = [Order("django", database, url, name, fence, ttl=10.0, timeout=30.0) for name in "ab"]
    with started(*orders) as (a, b):
        # It has looked at its lock for the last time.
        a.tell("sell before COMMIT")
        a.says()
        assert broken(operator)
        b.tell("sell")
        # With the fence for the row of that, without it for the product's, which it has read before.
        stock.wait_for_a_waiter()
        a.tell("go on")
        assert a.says() == "answered 200"
        assert b.says() == ("answered 409" if fence else "answered 200")
    assert stock.sellers() == ("a" if fence else "ab")
