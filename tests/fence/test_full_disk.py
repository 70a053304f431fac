"""The disk of the shop's database is full in the middle of a sale: an order is there as a whole, or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from loadtest.servers.databases import own_postgresql
from loadtest.servers.processes import find_account, home_of
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Stock, started
from tests.fence.test_failover import ENOUGH, hear
from tests.redis_server import RedisServer, redis_server
from tests.small_disk import fill, small_disk

__all__ = ["redis_server"]

#: More than fit into the pages that the tables have.
STOCK = 300
#: Bytes: a new database of PostgreSQL has 8 million.
SIZE = 24 * 1024 * 1024


@pytest.fixture
def disk() -> Iterator[Path]:
    # The account of a database may not look into the folders of our tests.
    account = find_account()
    with home_of(account) as home, small_disk(home, SIZE, account) as disk:
        yield disk


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, disk: Path) -> Iterator[str]:
    """The URL of a database whose tables are on *disk*."""
    if request.param == "sqlite":
        yield f"sqlite:///{disk}/shop.sqlite3"
        return
    with own_postgresql() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            connection.execute("CREATE DATABASE small TABLESPACE small")
        yield server.url.removesuffix("shop") + "small"


@pytest.mark.fault("F35")
def test_nothing_of_an_order_is_kept_for_which_the_disk_has_no_room(
    database: str, disk: Path, redis_server: RedisServer
) -> None:
    with closing(Stock(database)) as stock:
        stock.put(STOCK)
        order = Order("django", database, redis_server.url, "d", True, ttl=10.0)
        with started(order) as [instance]:
            instance.tell("rush")
            hear([instance], ENOUGH)
            filler = fill(disk)
            answers = list(iter(instance.says, "done"))
            assert answers.count("answered 500") == SHOPPERS
            sold = len(stock.sales())
            assert sold == ENOUGH + answers.count("answered 200") == STOCK - stock.left()
            assert sold < STOCK
            filler.unlink()
            instance.tell("rush")
            assert list(iter(instance.says, "done")).count("answered 200") == STOCK - sold
        assert (len(stock.sales()), stock.left()) == (STOCK, 0)


def sell_all(connection: psycopg.Connection) -> None:
    for _ in range(STOCK):
        connection.execute("UPDATE product SET stock = stock - 1 WHERE id = 1")
        connection.execute("INSERT INTO sale (seller, epoch, number) VALUES ('x', 1, '1')")


@pytest.mark.fault("F35", control=True)
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_without_a_transaction_a_piece_is_gone_that_nobody_has_bought(database: str, disk: Path) -> None:
    with closing(Stock(database)) as stock, psycopg.connect(database, autocommit=True) as connection:
        stock.put(STOCK)
        fill(disk)
        with pytest.raises(psycopg.errors.DiskFull):
            sell_all(connection)
        assert len(stock.sales()) < STOCK - stock.left()
