"""The views of the Quart shop: they wait for the lock in the event loop, and sell in a thread.

distlock has no guard for Quart, so the views use ``async with``.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quart import Blueprint, Response, jsonify, render_template, request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

import distlock
from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED, Decorator, View, guarded_async
from demo_shop.quart_shop import selling
from demo_shop.quart_shop.selling import SHOP, engine, in_thread
from demo_shop.sale import (
    KEY_HEADER,
    PRODUCT_ID,
    REPLAYED,
    OrderLine,
    Refusal,
    contended,
    lock_names,
    no_such_product,
    product_names,
    read_asked,
    read_cart,
)
from demo_shop.storefront import QUART_LINES, choices
from demo_shop.tables import Product, Purchase
from distlock import Grant

locks = distlock.connect(SHOP.lock, backend=SHOP.lock_backend or None, prefix="shop", ttl=SHOP.lock_ttl)


def locked(fenced: bool) -> Decorator:
    """Return the decorator that locks all products of a sale. *fenced*: give the view the grant."""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        async def inside(lines: Sequence[OrderLine]) -> Any:
            names = [*lock_names(request.headers.get(KEY_HEADER)), *product_names(lines)]
            try:
                async with locks.lock(*names) as grant:
                    return await view(lines, grant if fenced else None)
            except distlock.LockError as error:
                raise refusal(error) from error

        return inside

    return decorate


def refusal(error: distlock.LockError) -> Refusal:
    """Return what a buyer gets to read about *error*. Raise *error* itself if it is a mistake of the shop."""
    match error:
        case distlock.LockTimeout() | distlock.TooManyWaiters():
            return contended()
        case distlock.BackendUnavailable():
            return Refusal(503, "lock_backend_unavailable", "Nothing can be sold just now. Please try again")
        case distlock.LostInside():
            return Refusal(500, "lock_lost_inside", "Perhaps this was sold. Please look at your orders")
        case distlock.LockLost():
            return Refusal(503, "lock_lost", "This took too long, and nothing was sold. Please try again")
    raise error


shop = Blueprint("shop", __name__)
FENCED = SHOP.guard == DISTRIBUTED and SHOP.fence


def refuse(refusal: Refusal) -> Response:
    response = jsonify(refusal.said)
    response.status_code = refusal.status
    return response


def seller(shop: Configuration, fenced: bool) -> Callable[[Sequence[OrderLine]], Awaitable[Response]]:
    """Return the function that sells under the guard of *shop*."""

    @guarded_async(shop, locked(fenced), product_names, refuse)
    async def sell(lines: Sequence[OrderLine], grant: Grant | None = None) -> Response:
        same = (request.method, request.path, request.query_string, await request.get_data())
        asked = read_asked(request.headers.get(KEY_HEADER), *same)
        if asked is None:
            return jsonify(words.bought(SHOP, await selling.sell(lines, grant)))
        # The key, the answer and the order are written in one transaction, which has to be one function.
        status, body, again = await in_thread(selling.sell_once, asked, lines, grant)
        headers = {REPLAYED: "true"} if again else {}
        return Response(body, status, headers, content_type="application/json")

    return sell


sell = seller(SHOP, FENCED)


@shop.post("/products/<int:id>/reduce")
async def reduce_stock(id: int) -> Response:
    """Sell one unit."""
    return await sell([OrderLine(id)])


#: The sellers that the page offers, by the last part of their routes.
chosen = {
    slug: seller(choice.furnish(SHOP), FENCED if choice.fence is None else choice.fence)
    for slug, choice in choices(SHOP).items()
}


@shop.post(f"/products/<int:id>/reduce/<any({', '.join(chosen)}):slug>")
async def reduce_stock_by_choice(id: int, slug: str) -> Response:
    return await chosen[slug]([OrderLine(id)])


@shop.post("/checkout")
async def checkout() -> Response:
    """Sell all of a cart, or nothing."""
    return await sell(read_cart(await request.get_data()))


@shop.get("/products/<int:id>")
async def show_product(id: int) -> Response:
    return jsonify(await in_thread(describe, id))


@shop.get("/")
async def storefront() -> str:
    product = await in_thread(describe, PRODUCT_ID)
    return await render_template("storefront.html", product=product, page=words.page(SHOP, QUART_LINES))


def describe(id: int) -> dict[str, object]:
    with Session(engine) as session:
        product = session.get(Product, id)
        if product is None:
            raise no_such_product()
        shelf = session.scalars(select(Product).order_by(Product.id))
        sold = session.scalar(select(func.count(Purchase.id)).where(Purchase.product_id == id))
        recent = session.scalars(select(Purchase).order_by(Purchase.id.desc()).limit(words.RECENT))
        return words.describe(SHOP, product, shelf, sold or 0, recent)
