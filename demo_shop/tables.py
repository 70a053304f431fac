"""The two tables of the shop, for both frameworks."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, String
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: To the microsecond, because the report draws the orders in time; MySQL's own default is the second.
Moment = DateTime(timezone=True).with_variant(DATETIME(fsp=6), "mysql")


class Base(DeclarativeBase):
    pass


# No CHECK (stock >= 0) and no version column: a database that refuses to be wrong would hide the race.
class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_name: Mapped[str] = mapped_column(String(100))
    stock: Mapped[int]


class Purchase(Base):
    __tablename__ = "purchase"

    id: Mapped[int] = mapped_column(primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    quantity: Mapped[int] = mapped_column(default=1)
    order_number: Mapped[str] = mapped_column(String(36), unique=True)
    instance: Mapped[str] = mapped_column(String(50))
    #: The stock that this buyer read. Two orders with the same figure are one unit, sold twice.
    stock_seen: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(Moment)
