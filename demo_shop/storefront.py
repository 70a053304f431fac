"""The contents of the shop's page and JSON answers, and the guards that a visitor can choose from.

Every instance has a route for each choice, made of the same parts as the route that a load test uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.sale import CATALOGUE, Receipt

FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Choice:
    """A guard that a visitor of the page can choose, while the shop runs."""

    #: The last part of its route.
    slug: str
    title: str
    #: The line of code that guards the view, as the page shows it.
    line: str
    #: One of `demo_shop.guards.GUARDS`.
    guard: str
    #: Why the guard is enough, or not.
    why: str
    #: Whether the guard passes the fence; None: as the shop's settings say.
    fence: bool | None = None
    #: What `why` is for a sale in which one process stood still; "": `why` itself.
    late: str = ""

    @property
    def why_late(self) -> str:
        return self.late or self.why

    def furnish(self, shop: Configuration) -> Configuration:
        """Return *shop* with the guard of this choice."""
        return replace(shop, guard=self.guard)


def plainly(guard: str, title: str, fence: bool | None = None) -> Choice:
    """Return the choice of one of `GUARDS`, with the texts of that guard."""
    found = GUARDS[guard]
    return Choice(guard, title, found.line, guard, found.why, fence)


NONE, PROCESS = plainly("none", "No lock"), plainly("process", "Process lock")
LOCKED = replace(
    plainly(DISTRIBUTED, "distlock", fence=False),
    late="A process that stands still renews no lock, and when it goes on it does not know yet that its lock "
    "is over. No lock service can tell it in time. The database can: that is what the fence is for.",
)
WITH_FENCE = Choice(
    FENCED,
    "distlock with fence",
    '@distributed_lock("product_<id>", fence=True)',
    DISTRIBUTED,
    "The distributed lock, and a row of the database besides, which keeps out a holder that stood still and "
    "was overtaken. Nobody stood still in this sale, so it made no difference.",
    fence=True,
    late="The purchase's transaction begins with the fence's row in the database. The next holder waited "
    "there, until the late purchase had found its lock gone and was rolled back.",
)
#: The lines of choices whose code differs in async views, by slug.
ASYNC_LINES = {
    PROCESS.slug: 'async with process_lock("product_1"):  # an asyncio.Lock',
    FENCED: '@distributed_lock("product_<id>")  # and atomic(grant) where it sells',
}
#: These lines in the Quart shop, for which distlock has no guards.
QUART_LINES = {
    PROCESS.slug: ASYNC_LINES[PROCESS.slug],
    DISTRIBUTED: 'async with locks.lock("product_1"):',
    FENCED: 'async with locks.lock("product_1") as grant:  # and transaction(grant, session) where it sells',
}


def choices(shop: Configuration) -> dict[str, Choice]:
    """Return the choices by slug. The guard that the shop was opened with is among them."""
    if shop.row_is_lock:
        # The fence row is the lock, so "distlock" with and without the fence are one choice.
        offered = [NONE, PROCESS, replace(LOCKED, fence=None)]
    else:
        offered = [NONE, PROCESS, LOCKED, WITH_FENCE]
    if shop.guard not in {choice.guard for choice in offered}:
        offered.append(plainly(shop.guard, GUARDS[shop.guard].title))
    return {choice.slug: choice for choice in offered}


def chosen(shop: Configuration) -> str:
    """Return the slug of the choice that the shop was opened with."""
    return FENCED if shop.guard == DISTRIBUTED and shop.fence and not shop.row_is_lock else shop.guard


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
    """Return what the page shows beside the product: whether it can send buyers, and the guards to choose.

    *lines*: the lines of choices whose code differs in this instance, by slug.
    """
    offered = [replace(one, line=lines.get(slug, one.line)) for slug, one in choices(shop).items()]
    return {"sales": shop.sales, "choices": offered, "chosen": chosen(shop)}


def bought(shop: Configuration, receipt: Receipt) -> dict[str, object]:
    """Return the answer to the buyer of one product, or of a cart."""
    return {
        "order": receipt.number,
        "instance": shop.instance,
        "units": {str(sku): unit for sku, unit in receipt.seen.items()},
    }
