"""A sale as rows, by SQLAlchemy, in a session of the caller's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select
from sqlalchemy.orm import Session, scoped_session

from demo_shop.sale import Line, Receipt, check_stock
from demo_shop.tables import Product, Purchase

AnySession = Session | scoped_session[Any]


def look_up(session: AnySession, products: Select[Product], lines: Sequence[Line]) -> Mapping[int, Product]:
    """Those of *products* that are bought. Raises `Refusal` where one is not there, or not enough of it."""
    wanted = products.where(Product.id.in_([line.sku for line in lines]))
    found = {product.id: product for product in session.scalars(wanted)}
    check_stock(lines, {sku: product.stock for sku, product in found.items()})
    return found


def record(session: AnySession, instance: str, lines: Sequence[Line], seen: Mapping[int, int]) -> Receipt:
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
