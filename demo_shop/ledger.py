"""The two tables of the shop, and what they say: the truth that a run is judged by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

PRODUCT_ID = 1
PRODUCT_NAME = "ECS:1C2048M"
#: Readers beside a writer; no fsync for each order; writers queue instead of failing.
SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=30000")

metadata = MetaData()
# No CHECK (stock >= 0) and no version column: a database that refuses to be wrong would hide the race.
product_table = Table(
    "product",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("product_name", String(100), nullable=False),
    Column("stock", Integer, nullable=False),
)
purchase_table = Table(
    "purchase",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("product_id", ForeignKey("product.id"), nullable=False),
    Column("quantity", Integer, nullable=False),
    Column("order_number", String(36), nullable=False, unique=True),
    Column("instance", String(50), nullable=False),
    # The stock that this buyer read. Two orders with the same figure are one unit, sold twice.
    Column("stock_seen", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)


@dataclass(frozen=True, slots=True)
class Order:
    number: str
    instance: str
    stock_seen: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Ledger:
    """The stock that is left, and every order, oldest first."""

    stock: int
    orders: tuple[Order, ...]


def database_url(text: str) -> URL:
    url = make_url(text)
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def prepare_sqlite(engine: Engine) -> None:
    """Give each new connection of *engine* the pragmas that let many threads use one file."""
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        for pragma in SQLITE_PRAGMAS:
            cursor.execute(pragma)
        cursor.close()


@contextmanager
def connect(database: str) -> Iterator[Connection]:
    engine = create_engine(database_url(database), poolclass=NullPool)
    prepare_sqlite(engine)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def open_sale(database: str, stock: int) -> None:
    """Put *stock* units on the shelf and forget every order."""
    url = make_url(database)
    if url.drivername == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    with connect(database) as connection:
        metadata.create_all(connection)
        connection.execute(purchase_table.delete())
        connection.execute(product_table.delete())
        connection.execute(
            product_table.insert().values(id=PRODUCT_ID, product_name=PRODUCT_NAME, stock=stock)
        )


def read_ledger(database: str) -> Ledger:
    columns = purchase_table.c
    with connect(database) as connection:
        stock = connection.execute(
            select(product_table.c.stock).where(product_table.c.id == PRODUCT_ID)
        ).scalar_one()
        rows = connection.execute(
            select(columns.order_number, columns.instance, columns.stock_seen, columns.created_at).order_by(
                columns.created_at, columns.id
            )
        ).all()
    return Ledger(stock, tuple(Order(a, b, c, aware(when)) for a, b, c, when in rows))


def aware(when: datetime) -> datetime:
    """SQLite keeps no time zone; both faces write UTC."""
    return when if when.tzinfo else when.replace(tzinfo=UTC)
