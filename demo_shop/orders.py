"""What is sold, and what was: for both frameworks, and without the library of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

PRODUCT_ID = 1
#: The first is the article's; a cart needs more than one.
CATALOGUE = {
    "ECS:1C2048M": "A small cloud server: 1 CPU, 2 GB of memory",
    "ECS:2C4096M": "A medium one: 2 CPUs, 4 GB of memory",
    "ECS:4C8192M": "A large one: 4 CPUs, 8 GB of memory",
    "ECS:8C16384M": "A huge one: 8 CPUs, 16 GB of memory",
}


@dataclass(frozen=True, slots=True)
class Order:
    """One product of one order: a cart has a line for each."""

    number: str
    product: int
    quantity: int
    instance: str
    stock_seen: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is left of each product, and every line of every order, oldest first."""

    left: Mapping[int, int]
    orders: tuple[Order, ...]

    @property
    def stock(self) -> int:
        return sum(self.left.values())

    @property
    def sold(self) -> int:
        return sum(order.quantity for order in self.orders)
