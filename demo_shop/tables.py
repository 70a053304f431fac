"""The tables of the shop in SQLAlchemy, and functions that write the rows of orders and kept answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import CursorResult, DateTime, ForeignKey, Select, String, Text, insert, update
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session

from demo_shop.sale import Asked, OrderLine, Receipt, check_stock
from flask_distlock.fence import fence_table

#: A time with microseconds, because the report draws orders over time. MySQL's default has whole seconds.
Moment = DateTime(timezone=True).with_variant(DATETIME(fsp=6), "mysql")


class Base(DeclarativeBase):
    pass


# There is no CHECK (stock >= 0), because it would hide the race.
class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_name: Mapped[str] = mapped_column(String(100))
    stock: Mapped[int]
    #: Only the guard ``optimistic`` uses it.
    version: Mapped[int] = mapped_column(default=0)


class Purchase(Base):
    __tablename__ = "purchase"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    quantity: Mapped[int] = mapped_column(default=1)
    #: The same for all rows of a cart, which has one row for each product.
    order_number: Mapped[str] = mapped_column(String(36), index=True)
    instance: Mapped[str] = mapped_column(String(50))
    #: The stock that this buyer read. If two orders have read the same stock, one unit was sold twice.
    stock_seen: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(Moment)


class LockRow(Base):
    """The lock of the guard ``unique-row``: the request that inserts the name has the lock."""

    __tablename__ = "lock_row"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    owner: Mapped[str] = mapped_column(String(36))
    #: Unix seconds, by the writer's clock.
    expires_at: Mapped[float]


class KeptAnswer(Base):
    """The answer to the first request with a key: see `demo_shop.sale.Asked`."""

    __tablename__ = "answer"

    key: Mapped[str] = mapped_column("idempotency_key", String(64), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    body: Mapped[str] = mapped_column(Text)
    #: Old rows may be deleted, because clients repeat a request within a day.
    created_at: Mapped[datetime] = mapped_column(Moment)


#: The fence rows, which are the distributed lock itself if there is no lock service.
FENCE = fence_table(Base.metadata)


AnySession = Session | scoped_session[Any]


def look_up(
    session: AnySession, products: Select[Product], lines: Sequence[OrderLine]
) -> Mapping[int, Product]:
    """Return the products of *lines* by id, read with the query *products*.

    Raise `Refusal` if one is missing, or its stock is too small.
    """
    wanted = products.where(Product.id.in_([line.sku for line in lines]))
    found = {product.id: product for product in session.scalars(wanted)}
    check_stock(lines, {sku: product.stock for sku, product in found.items()})
    return found


def record(
    session: AnySession, instance: str, lines: Sequence[OrderLine], seen: Mapping[int, int]
) -> Receipt:
    """Write the order. The caller commits it together with the stock."""
    number = str(uuid.uuid4())
    session.add_all(
        Purchase(
            product_id=line.sku,
            quantity=line.quantity,
            order_number=number,
            instance=instance,
            stock_seen=seen[line.sku],
            created_at=datetime.now(UTC),
        )
        for line in lines
    )
    session.flush()
    return Receipt(number, seen)


class KeyTaken(Exception):
    """The database already has a row for the key."""


def write_answer(session: AnySession, asked: Asked, status: int = 0, body: str = "") -> None:
    """Insert the row of a key. After `KeyTaken`, the caller has to roll the transaction back."""
    row = {"status": status, "body": body, "created_at": datetime.now(UTC)}
    try:
        session.execute(insert(KeptAnswer).values(key=asked.key, fingerprint=asked.fingerprint, **row))
    except IntegrityError as error:
        raise KeyTaken from error


def keep_answer(session: AnySession, asked: Asked, status: int, body: str) -> None:
    """Keep the answer for later requests with this key, unless its status is 500 or more."""
    if status >= 500:
        return
    done = session.execute(
        update(KeptAnswer).where(KeptAnswer.key == asked.key).values(status=status, body=body)
    )
    assert isinstance(done, CursorResult)
    if not done.rowcount:
        # The view has rolled back, and so removed the row of the key.
        write_answer(session, asked, status, body)


def first_answer(session: AnySession, asked: Asked) -> KeptAnswer:
    """Return the answer to the first request with this key. Raise `Refusal` if the requests differ."""
    found = session.get_one(KeptAnswer, asked.key)
    asked.refuse_another(found.fingerprint)
    return found
