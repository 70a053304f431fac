"""The tables of the shop, and how a sale and a kept answer are written as rows, by SQLAlchemy."""

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

#: To the microsecond, because the report draws the orders in time; MySQL's own default is the second.
Moment = DateTime(timezone=True).with_variant(DATETIME(fsp=6), "mysql")


class Base(DeclarativeBase):
    pass


# No CHECK (stock >= 0): a database that refuses to be wrong would hide the race.
class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_name: Mapped[str] = mapped_column(String(100))
    stock: Mapped[int]
    #: Only the guard ``optimistic`` looks at it.
    version: Mapped[int] = mapped_column(default=0)


class Purchase(Base):
    __tablename__ = "purchase"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    quantity: Mapped[int] = mapped_column(default=1)
    #: A cart has one row for each product, and one number.
    order_number: Mapped[str] = mapped_column(String(36), index=True)
    instance: Mapped[str] = mapped_column(String(50))
    #: The stock that this buyer read. Two orders with the same figure are one unit, sold twice.
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
    #: Old ones may be deleted: a client that repeats does so within the day.
    created_at: Mapped[datetime] = mapped_column(Moment)


#: The fence's rows, which are the distributed lock itself where there is no lock service.
FENCE = fence_table(Base.metadata)


AnySession = Session | scoped_session[Any]


def look_up(
    session: AnySession, products: Select[Product], lines: Sequence[OrderLine]
) -> Mapping[int, Product]:
    """Return the *products* that are bought; raise `Refusal` where one is missing, or not enough of it."""
    wanted = products.where(Product.id.in_([line.sku for line in lines]))
    found = {product.id: product for product in session.scalars(wanted)}
    check_stock(lines, {sku: product.stock for sku, product in found.items()})
    return found


def record(
    session: AnySession, instance: str, lines: Sequence[OrderLine], seen: Mapping[int, int]
) -> Receipt:
    """Write the order, which is then committed together with the stock."""
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
    """The key is in the database already."""


def write_answer(session: AnySession, asked: Asked, status: int = 0, body: str = "") -> None:
    """Write the row of a key. Raises `KeyTaken`; then the transaction has to be rolled back."""
    row = {"status": status, "body": body, "created_at": datetime.now(UTC)}
    try:
        session.execute(insert(KeptAnswer).values(key=asked.key, fingerprint=asked.fingerprint, **row))
    except IntegrityError as error:
        raise KeyTaken from error


def keep_answer(session: AnySession, asked: Asked, status: int, body: str) -> None:
    """Keep the answer for each later request with this key, unless it is a failure of the shop's."""
    if status >= 500:
        return
    done = session.execute(
        update(KeptAnswer).where(KeptAnswer.key == asked.key).values(status=status, body=body)
    )
    assert isinstance(done, CursorResult)
    if not done.rowcount:
        # The view has rolled back, and the key with it.
        write_answer(session, asked, status, body)


def first_answer(session: AnySession, asked: Asked) -> KeptAnswer:
    """Return the answer to the first request. Raises `Refusal` if that was another request."""
    found = session.get_one(KeptAnswer, asked.key)
    asked.refuse_another(found.fingerprint)
    return found
