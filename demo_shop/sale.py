"""One purchase: what is bought, why it may be refused, its ``Idempotency-Key``, and moments to note.

All frameworks share this module, which imports none of them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from demo_shop.configuration import Configuration

PRODUCT_ID = 1
#: The names of the products, with what the page says about each. Only carts need more than the first product.
CATALOGUE = {
    "ECS:1C2048M": "A small cloud server: 1 CPU, 2 GB of memory",
    "ECS:2C4096M": "A medium one: 2 CPUs, 4 GB of memory",
    "ECS:4C8192M": "A large one: 4 CPUs, 8 GB of memory",
    "ECS:8C16384M": "A huge one: 8 CPUs, 16 GB of memory",
}


@dataclass(frozen=True, slots=True)
class Order:
    """A row of an order in the database. A cart has one for each product."""

    number: str
    product: int
    quantity: int
    instance: str
    stock_seen: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Ledger:
    """The stock that is left of each product, and all rows of all orders, oldest first."""

    left: Mapping[int, int]
    orders: tuple[Order, ...]

    @property
    def stock(self) -> int:
        return sum(self.left.values())

    @property
    def sold(self) -> int:
        return sum(order.quantity for order in self.orders)


@dataclass(frozen=True, slots=True, order=True)
class OrderLine:
    """A quantity of one product."""

    sku: int
    quantity: int = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """An order that is in the database."""

    number: str
    #: The stock of each product before this order.
    seen: Mapping[int, int]


class Refusal(Exception):
    """The answer to a request that buys nothing."""

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
    # The code is that of distlock's 423, because both answers mean the same and are counted together.
    return Refusal(423, "lock_contended", "Somebody else is buying this. Please try again")


def overtaken() -> Refusal:
    return Refusal(503, "overtaken", "Others were quicker each time. Please try again")


def bad_id() -> Refusal:
    return Refusal(400, "bad_id", "This is no product: write /stock/reduce?id=1")


def no_goods() -> Refusal:
    return Refusal(503, "no_goods", "This shop has no Redis for /kill: set SHOP_GOODS to redis://host:port/0")


def read_id(text: str | None) -> int:
    """Return the id of a product from *text*. Raise `Refusal` if it is none."""
    if not text or not text.isascii() or not text.isdecimal():
        raise bad_id()
    return int(text)


def read_cart(body: str | bytes) -> list[OrderLine]:
    """Return a line for each product. Raise `Refusal` if *body* is no cart.

    The lines are sorted, so that two carts never deadlock on the rows of products.
    """
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
    return sorted(OrderLine(sku, quantity) for sku, quantity in wanted.items())


def product_names(lines: Sequence[OrderLine]) -> list[str]:
    """Return the names of the locks for *lines*."""
    return [f"product_{line.sku}" for line in lines]


def check_stock(lines: Sequence[OrderLine], stock: Mapping[int, int]) -> None:
    """Raise `Refusal` unless *stock* is enough for all *lines*: a cart is sold as a whole, or not at all."""
    for line in lines:
        if line.sku not in stock:
            raise no_such_product()
        if stock[line.sku] < line.quantity:
            raise sold_out()


KEY_HEADER = "Idempotency-Key"
#: The header of an answer that repeats an earlier one, named as Stripe names it.
REPLAYED = "Idempotent-Replayed"
LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with an ``Idempotency-Key``: a repetition of it gets the first answer, and makes no order.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ describes the header. The
    answer is a row, which is committed together with the order, so that both exist or neither. See
    docs/how-to/idempotency.md. The fields are digests, which have one length, and differ in every collation.
    """

    key: str
    #: The digest of everything that has to be equal in a repetition.
    fingerprint: str

    def refuse_another(self, fingerprint: str) -> None:
        """Raise `Refusal` if the key was used for a request with another *fingerprint*."""
        if fingerprint != self.fingerprint:
            title = "This Idempotency-Key was used for another request. Take a new one"
            raise Refusal(422, "key_reused", title)


def read_key(header: str | None) -> str | None:
    """Return the key in *header*, as it is stored; None if the client sent none."""
    if header is None:
        return None
    # In the draft the key is in quotes, as a string of structured fields. Most clients send it without.
    key = header[1:-1] if header[:1] == header[-1:] == '"' else header
    if not (key.isascii() and key.isprintable() and 1 <= len(key) <= LONGEST_KEY):
        title = f"The Idempotency-Key has to be 1 to {LONGEST_KEY} characters of ASCII, such as a UUID"
        raise Refusal(400, "bad_key", title)
    return digest(key)


def read_asked(header: str | None, *request: str | bytes) -> Asked | None:
    """Return key and fingerprint of a request, or None without a key. *request*: its method, URL, body."""
    key = read_key(header)
    return None if key is None else Asked(key, digest(*request))


def lock_names(header: str | None) -> list[str]:
    """Return the lock name of the key in *header*; an empty list without a key.

    A repetition waits for this lock. Without it, the repetition would wait in the database.
    """
    key = read_key(header)
    return [] if key is None else [f"key_{key}"]


def digest(*parts: str | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        found.update(len(encoded).to_bytes(8, "big") + encoded)
    return found.hexdigest()


#: The header with the buyer's name for this purchase.
PURCHASE_HEADER = "X-Purchase"
#: A purchase waits at most this many seconds for the listener of ``SHOP_STALL``.
STALL_PATIENCE = 30.0
_purchase: ContextVar[str] = ContextVar("purchase", default="")
_first = threading.Lock()


def begin_purchase(purchase: str) -> None:
    """Count the moments that this thread or task reaches from now on as those of *purchase*."""
    _purchase.set(purchase)


def reach(shop: Configuration, what: str, **details: object) -> None:
    """Note that the purchase has reached the moment *what*, for the timelines in the report.

    The note is written only if ``SHOP_JOURNAL`` names a file. With ``SHOP_STALL`` a load test stops the
    purchase at a moment, so that the test does not have to hit the right millisecond.
    """
    if shop.journal:
        moment = {"at": time.time(), "instance": shop.instance, "purchase": _purchase.get(), "what": what}
        # Each line is one write(), so that lines of two instances don't mix.
        os.write(_journal(shop.journal), f"{json.dumps(moment | details)}\n".encode())
    if shop.stall:
        _stall_if_told(shop, what)


def _stall_if_told(shop: Configuration, what: str) -> None:
    instance, point, port, *called = shop.stall.split(":")
    if (instance, point) != (shop.instance, what):
        return
    if _purchase.get() in called if called else _first.acquire(blocking=False):
        _stall(int(port))


@functools.cache
def _journal(file: str) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _stall(port: int) -> None:
    """Send the purchase's name to the listener on *port*, and wait until the listener hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=STALL_PATIENCE) as harness:
        harness.sendall(_purchase.get().encode())
        harness.shutdown(socket.SHUT_WR)
        harness.recv(1)
