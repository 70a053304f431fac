"""What the shop says about a product: the same words as JSON and on the page, in both frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from demo_shop.configuration import GUARDS, Configuration

RECENT = 8


class ProductRow(Protocol):
    id: int
    product_name: str
    stock: int


class PurchaseRow(Protocol):
    id: int
    order_number: str
    instance: str
    stock_seen: int
    created_at: datetime


def describe(
    shop: Configuration, product: ProductRow, sold: int, recent: Iterable[PurchaseRow]
) -> dict[str, object]:
    return {
        "id": product.id,
        "product_name": product.product_name,
        "stock": product.stock,
        "initial_stock": shop.stock,
        "sold": sold,
        "oversold": sold > shop.stock,
        "instance": shop.instance,
        "guard": GUARDS[shop.guard],
        "recent_orders": [
            {
                "number": order.order_number,
                "instance": order.instance,
                "unit": order.stock_seen,
                "time": order.created_at.strftime("%H:%M:%S"),
            }
            for order in recent
        ],
    }


def bought(shop: Configuration, order: PurchaseRow) -> dict[str, object]:
    return {"order": order.order_number, "unit": order.stock_seen, "instance": shop.instance}


SOLD_OUT = {"code": "sold_out", "title": "Sold out"}
NO_SUCH_PRODUCT = {"code": "no_such_product", "title": "There is no such product"}
