"""What is bought, and why it may be refused: the same in both frameworks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """So many of one product."""

    sku: int
    quantity: int = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """An order that is in the database."""

    number: str
    #: The stock of each product before this order.
    seen: Mapping[int, int]


class Refusal(Exception):
    """An answer other than a receipt."""

    def __init__(self, status: int, code: str, title: str) -> None:
        super().__init__(title)
        self.status, self.said = status, {"code": code, "title": title}


def sold_out() -> Refusal:
    return Refusal(409, "sold_out", "Sold out")


def no_such_product() -> Refusal:
    return Refusal(404, "no_such_product", "There is no such product")


def no_such_cart(reason: str) -> Refusal:
    shape = '{"lines": [{"sku": 3, "quantity": 1}]}'
    return Refusal(400, "bad_cart", f"This is no cart: {reason}. A cart is {shape}")


def contended() -> Refusal:
    # distlock's own code: the answers are counted by it, and the two mean the same.
    return Refusal(423, "lock_contended", "Somebody else is buying this. Please try again")


def overtaken() -> Refusal:
    return Refusal(503, "overtaken", "Others were quicker each time. Please try again")


def bad_id() -> Refusal:
    return Refusal(400, "bad_id", "This is no product: write /stock/reduce?id=1")


def no_goods() -> Refusal:
    return Refusal(503, "no_goods", "This shop has no Redis for /kill: set SHOP_GOODS to redis://host:port/0")


def read_id(text: str | None) -> int:
    """A number as anybody writes it."""
    if not text or not text.isascii() or not text.isdecimal():
        raise bad_id()
    return int(text)


def read_cart(body: str | bytes) -> list[Line]:
    """One line for each product, in one order: two carts then never wait for each other's rows."""
    try:
        cart = json.loads(body)
        wanted: dict[int, int] = {}
        for line in cart["lines"]:
            sku, quantity = line["sku"], line.get("quantity", 1)
            if type(sku) is not int or type(quantity) is not int or quantity < 1:
                raise no_such_cart("sku and quantity are whole numbers, and the quantity is 1 or more")
            wanted[sku] = wanted.get(sku, 0) + quantity
    except (ValueError, KeyError, TypeError, AttributeError):
        raise no_such_cart("the body has another shape") from None
    if not wanted:
        raise no_such_cart("it is empty")
    return sorted(Line(sku, quantity) for sku, quantity in wanted.items())


def product_names(lines: Sequence[Line]) -> list[str]:
    """The locks of what is bought."""
    return [f"product_{line.sku}" for line in lines]


def check_stock(lines: Sequence[Line], stock: Mapping[int, int]) -> None:
    """All of the cart or nothing."""
    for line in lines:
        if line.sku not in stock:
            raise no_such_product()
        if stock[line.sku] < line.quantity:
            raise sold_out()
