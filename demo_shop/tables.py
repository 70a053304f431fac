"""The tables of the shop, for both frameworks."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, String, Text
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

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
    """The lock of the guard ``unique-row``: the request that can insert the name has it."""

    __tablename__ = "lock_row"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    owner: Mapped[str] = mapped_column(String(36))
    #: By the clock of its writer, Unix seconds.
    expires_at: Mapped[float]


class Answer(Base):
    """What was answered to the first request with a key: see `demo_shop.once`."""

    __tablename__ = "answer"

    key: Mapped[str] = mapped_column("idempotency_key", String(64), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    body: Mapped[str] = mapped_column(Text)
    #: Old ones may be deleted: a client that repeats does so within the day.
    created_at: Mapped[datetime] = mapped_column(Moment)


#: What the distributed lock has in the database, where it is there.
FENCE = fence_table(Base.metadata)
