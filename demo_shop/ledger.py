"""The shop's database: open it, fill it for a sale, and read what was sold and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, create_engine, delete, event, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from demo_shop import SQLITE_PRAGMAS
from demo_shop.sale import CATALOGUE, PRODUCT_ID, Ledger, Order
from demo_shop.tables import Base, KeptAnswer, LockRow, Product, Purchase

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    # MariaDB and MySQL share one dialect, as in Django.
    "mariadb": "mysql+pymysql",
}


def database_url(text: str) -> URL:
    """Return the URL for SQLAlchemy, with the driver that Django uses, too."""
    url = make_url(text)
    return url.set(drivername=DRIVERS.get(url.drivername, url.drivername))


def isolation(database: str) -> dict[str, str]:
    """Return options of the engine: the isolation level that Django sets, so that all frameworks agree."""
    if database_url(database).get_backend_name() != "mysql":
        return {}
    # With MySQL's default, a transaction would see the stock that it read first until its end.
    return {"isolation_level": "READ COMMITTED"}


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
def session(database: str) -> Iterator[Session]:
    engine = create_engine(database_url(database), poolclass=NullPool)
    prepare_sqlite(engine)
    try:
        with Session(engine) as opened, opened.begin():
            yield opened
    finally:
        engine.dispose()


def open_sale(database: str, stock: int, products: int = 1, commit_pause: float = 0.0) -> None:
    """Put *stock* units of each product on the shelf. Delete all orders, lock rows and kept answers."""
    url = make_url(database)
    if url.drivername == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    with session(database) as shop:
        Base.metadata.create_all(shop.connection())
        slow_down(shop, commit_pause)
        for table in (Purchase, Product, LockRow, KeptAnswer):
            shop.execute(delete(table))
        for number, name in enumerate(list(CATALOGUE)[:products], PRODUCT_ID):
            shop.add(Product(id=number, product_name=name, stock=stock))


def read_ledger(database: str) -> Ledger:
    with session(database) as shop:
        left = {product.id: product.stock for product in shop.scalars(select(Product))}
        orders = tuple(
            Order(
                row.order_number,
                row.product_id,
                row.quantity,
                row.instance,
                row.stock_seen,
                aware(row.created_at),
            )
            for row in shop.scalars(select(Purchase).order_by(Purchase.created_at, Purchase.id))
        )
    return Ledger(left, orders)


def aware(when: datetime) -> datetime:
    """Return *when* in UTC. SQLite keeps no time zone; all frameworks write UTC."""
    return when if when.tzinfo else when.replace(tzinfo=UTC)


FUNCTION = """
CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$
"""
#: A deferred trigger runs at COMMIT, when all rows are written, and no other transaction sees them yet.
TRIGGER = """
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON purchase DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION slow_commit()
"""


def slow_down(shop: Session, seconds: float) -> None:
    """Make each COMMIT of an order take *seconds* longer, as on real disks and replicas; only on PostgreSQL.

    On SQLite it would show nothing: one transaction writes at a time, and the next one waits for its COMMIT
    even without a lock.
    """
    if shop.get_bind().dialect.name != "postgresql":
        return
    shop.execute(text("DROP TRIGGER IF EXISTS slow_commit ON purchase"))
    shop.execute(text("DROP FUNCTION IF EXISTS slow_commit"))
    if seconds:
        shop.execute(text(FUNCTION.format(seconds=float(seconds))))
        shop.execute(text(TRIGGER))
