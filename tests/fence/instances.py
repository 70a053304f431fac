"""Starts, stops and continues instances of a shop, and looks at the database that they share."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, insert, text

from demo_shop.ledger import database_url
from flask_distlock.fence import fence_table
from tests.databases import Databases
from tests.fence.instance import Order
from tests.forked import Forked
from tests.redis_server import eventually

#: Seconds after which an instance that says nothing is a failure.
PATIENCE = 60.0
#: The lease of locks that outlive the test, and how long a buyer waits who is to get one, seconds.
LONG, PATIENT = 60.0, 40.0

#: Which connections wait for a row of the database just now.
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    # Its tables of transactions are a cache, which is not made anew while somebody goes on asking.
    "mysql": "SELECT variable_value + 0 FROM information_schema.global_status "
    "WHERE variable_name = 'innodb_row_lock_current_waits'",
}


class Instance(Forked):
    """A process with the real handler."""

    def __init__(self, order: Order) -> None:
        super().__init__(order.framework, "tests.fence.instance", order.dump())
        assert self.says() == "ready"

    def says(self) -> str:
        """The next line, when it comes."""
        # One that stands still after a test that failed would keep the next one waiting for ever.
        late = threading.Timer(PATIENCE, self.kill)
        late.start()
        line = self.stdout.readline()
        late.cancel()
        assert line, "the instance has ended"
        return line.strip()


@contextmanager
def started(*orders: Order) -> Iterator[list[Instance]]:
    instances: list[Instance] = []
    try:
        for order in orders:
            instances.append(Instance(order))  # noqa: PERF401
        yield instances
    finally:
        for instance in instances:
            instance.close()


class Stock:
    """What the database says."""

    def __init__(self, url: str) -> None:
        self._engine: Engine = create_engine(database_url(url))
        metadata = MetaData()
        fence_table(metadata)
        self._product = Table(
            "product", metadata, Column("id", Integer, primary_key=True), Column("stock", Integer)
        )
        self._sale = Table(
            "sale",
            metadata,
            Column("id", Integer, primary_key=True),
            Column("seller", String(20)),
            Column("epoch", Integer),
            Column("number", String(20)),
        )
        metadata.drop_all(self._engine)
        metadata.create_all(self._engine)

    def put(self, stock: int) -> None:
        """*stock* pieces, none sold."""
        with self._engine.begin() as connection:
            connection.execute(self._product.delete())
            connection.execute(self._sale.delete())
            connection.execute(insert(self._product).values(id=1, stock=stock))

    def sales(self) -> list[tuple[str, int, int]]:
        """Seller, epoch and number of each, in their order."""
        with self._engine.connect() as connection:
            rows = connection.execute(text("SELECT seller, epoch, number FROM sale ORDER BY id")).all()
        return [(seller, epoch, int(number)) for seller, epoch, number in rows]

    def sellers(self) -> str:
        return "".join(seller for seller, _, _ in self.sales())

    def left(self) -> int:
        with self._engine.connect() as connection:
            left: int = connection.execute(text("SELECT stock FROM product")).scalar_one()
        return left

    def wait_for_a_waiter(self) -> None:
        """Until somebody waits for a row."""
        eventually(self._is_waited_for, "an instance waits for a row")

    def _is_waited_for(self) -> bool:
        with self._engine.connect() as connection:
            return bool(connection.execute(text(WAITING[self._engine.dialect.name])).scalar_one())

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def two(
    database: str, service: str, fence: bool, timeout: float, prefix: str = ""
) -> Iterator[tuple[Instance, Instance, Stock]]:
    """Start two instances of one shop, with one piece in stock."""
    prefix = prefix or secrets.token_hex(4)
    orders = [
        Order(kind, database, service, kind, fence, LONG, timeout, prefix=prefix)
        for kind in ("django", "flask")
    ]
    stock = Stock(database)
    stock.put(1)
    with closing(stock), started(*orders) as (one, other):
        yield one, other, stock


@pytest.fixture
def database(databases: Databases) -> str:
    return databases("postgresql", "instances")


@pytest.fixture
def stock(database: str) -> Iterator[Stock]:
    stock = Stock(database)
    yield stock
    stock.close()
