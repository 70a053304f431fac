"""What the shop says about a product: the same words as JSON and on the page, in both frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from demo_shop.choices import choices, chosen
from demo_shop.configuration import Configuration
from demo_shop.guards import GUARDS
from demo_shop.orders import CATALOGUE
from demo_shop.sale import Receipt

RECENT = 8


class ProductRow(Protocol):
    id: int
    product_name: str
    stock: int


class PurchaseRow(Protocol):
    product_id: int
    order_number: str
    instance: str
    stock_seen: int
    created_at: datetime


def describe(
    shop: Configuration,
    product: ProductRow,
    shelf: Iterable[ProductRow],
    sold: int,
    recent: Iterable[PurchaseRow],
) -> dict[str, object]:
    shelf = list(shelf)
    names = {one.id: one.product_name for one in shelf}
    return {
        "id": product.id,
        "plain": CATALOGUE[product.product_name],
        "product_name": product.product_name,
        "stock": product.stock,
        "initial_stock": shop.stock,
        "sold": sold,
        "oversold": sold > shop.stock,
        "instance": shop.instance,
        "guard": GUARDS[shop.guard].title,
        "shelf": [
            {"id": one.id, "name": one.product_name, "plain": CATALOGUE[one.product_name], "stock": one.stock}
            for one in shelf
        ],
        "recent_orders": [
            {
                "number": order.order_number,
                "product": names[order.product_id],
                "instance": order.instance,
                "unit": order.stock_seen,
                "time": order.created_at.strftime("%H:%M:%S"),
            }
            for order in recent
        ],
    }


def page(shop: Configuration, lines: Mapping[str, str] = MappingProxyType({})) -> dict[str, object]:
    """What the page has besides: whether it sends buyers, and what can be chosen to keep them apart.

    *lines*: those of the choices, by slug, that are others in this instance.
    """
    offered = [replace(one, line=lines.get(slug, one.line)) for slug, one in choices(shop).items()]
    return {"sales": shop.sales, "choices": offered, "chosen": chosen(shop)}


def bought(shop: Configuration, receipt: Receipt) -> dict[str, object]:
    """What a buyer of one product, or of a cart, is told."""
    return {
        "order": receipt.number,
        "instance": shop.instance,
        "units": {str(sku): unit for sku, unit in receipt.seen.items()},
    }
