"""A standby of PostgreSQL that lacks the last transactions takes over: of the shop, or of the locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from loadtest.servers.databases import PostgreSQLServer, own_postgresql, standby_of
from loadtest.servers.lock_services import prepare
from tests.backends.redis.proxy import Proxy
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Instance, Stock, database, started, stock
from tests.fence.test_failover import ENOUGH, hear
from tests.redis_server import RedisServer, eventually, redis_server

__all__ = ["database", "redis_server", "stock"]

STOCK = 400


@pytest.fixture
def primary() -> Iterator[PostgreSQLServer]:
    with own_postgresql() as server:
        yield server


@pytest.fixture
def ways(primary: PostgreSQLServer) -> Iterator[list[Proxy]]:
    """The ways of two instances to the primary, and that of its standby."""
    made = [Proxy(primary.port) for _ in range(3)]
    yield made
    for way in made:
        way.close()


def url_by(way: Proxy) -> str:
    return f"postgresql://shop@127.0.0.1:{way.port}/shop"


def sell_out(instance: Instance) -> list[str]:
    """Return the answers of *instance* from now on. A shopper whose connection was broken comes again."""
    answers = list(iter(instance.says, "done"))
    while answers.count("answered 409") < SHOPPERS:
        instance.tell("rush")
        again = list(iter(instance.says, "done"))
        answers = [answer for answer in answers if answer != "answered 409"] + again
    return answers


@pytest.mark.fault("F36")
def test_stock_and_fences_go_back_together(
    primary: PostgreSQLServer, ways: list[Proxy], redis_server: RedisServer
) -> None:
    one, other, link = ways
    with closing(Stock(url_by(one))) as stock, standby_of(link.port) as standby:
        stock.put(STOCK)
        orders = [
            Order("django", url_by(one), redis_server.url, "d", True, ttl=10.0),
            Order("flask", url_by(other), redis_server.url, "f", True, ttl=10.0),
        ]
        with started(*orders) as instances:
            for instance in instances:
                instance.tell("rush")
            hear(instances, ENOUGH)
            # The standby hears of nothing that is sold from here on.
            link.hold(replies=True)
            before = len(stock.sales())
            eventually(lambda: len(stock.sales()) >= before + ENOUGH, "it lacks some orders")
            old = stock.sales()
            standby.promote()
            stock.close()
            for way in (one, other):
                way.fail_over(standby.port)
            primary.kill()
            answers = [answer for instance in instances for answer in sell_out(instance)]
        sales = stock.sales()
        assert (len(sales), stock.left()) == (STOCK, 0)
    # Buyers were told of orders that are lost: a site that can't have that needs synchronous replication.
    lost = set(old) - set(sales)
    assert len(lost) >= ENOUGH
    assert 2 * ENOUGH + answers.count("answered 200") > STOCK
    # The fences behind went back as well, and no later order has one of those that were lost.
    numbers = [number for _, _, number in sales]
    assert numbers == sorted(set(numbers))
    assert not {number for _, _, number in lost} & set(numbers)


@pytest.mark.fault("F36")
@pytest.mark.fault("F36", control=True)
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_a_lock_service_that_went_back_beside_one_that_did_not(
    database: str, stock: Stock, primary: PostgreSQLServer, ways: list[Proxy], fence: bool
) -> None:
    one, other, link = ways
    prepare(primary.url)
    with standby_of(link.port) as standby:
        stock.put(STOCK)
        orders = [
            Order("django", database, url_by(one), "d", fence, ttl=2.0),
            Order("flask", database, url_by(other), "f", fence, ttl=2.0),
        ]
        with started(*orders) as instances:
            for instance in instances:
                instance.tell("rush")
            hear(instances, ENOUGH)
            link.hold(replies=True)
            hear(instances, ENOUGH)
            standby.promote()
            # Both give out the lock, each to one instance.
            one.fail_over(standby.port)
            hear(instances, ENOUGH)
            other.fail_over(standby.port)
            answers = [answer for instance in instances for answer in iter(instance.says, "done")]
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    sales = [fence for _, *fence in stock.sales()]
    if fence:
        assert (len(sales), stock.left()) == (STOCK, 0)
        assert sales == sorted(sales)
    else:
        assert len(sales) > STOCK
