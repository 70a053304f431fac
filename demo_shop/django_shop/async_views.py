"""The Django shop as ASGI: its views wait for the lock in the event loop, and sell in a thread.

A coroutine can't use Django's transactions, so each transaction is a plain function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

import django_distlock
from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.django_shop import views
from demo_shop.django_shop.models import Product
from demo_shop.django_shop.selling import SHOP, key_name, look_up, once, read_and_write, record, refuse
from demo_shop.django_shop.views import cart_names, product_name
from demo_shop.guards import DISTRIBUTED, guarded_async
from demo_shop.sale import KEY_HEADER, OrderLine, Receipt, read_cart
from demo_shop.storefront import ASYNC_LINES, choices
from distlock import Grant, current_grant
from django_distlock import distributed_lock


async def sell_lines(lines: Sequence[OrderLine], grant: Grant | None) -> Receipt:
    """Read the stock, pause, write what was read minus what is bought. With a *grant*, pass the fence."""
    if grant:
        return await sync_to_async(sell_fenced)(lines, grant)
    seen = await sync_to_async(read)(lines)
    # The event loop serves other requests meanwhile. A pause in the thread would keep them from the database.
    await asyncio.sleep(SHOP.pause)
    return await sync_to_async(write)(lines, seen)


def read(lines: Sequence[OrderLine]) -> Mapping[int, int]:
    return {sku: product.stock for sku, product in look_up(Product.objects.all(), lines).items()}


def write(lines: Sequence[OrderLine], seen: Mapping[int, int]) -> Receipt:
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=seen[line.sku] - line.quantity)
        return record(lines, seen)


def sell_fenced(lines: Sequence[OrderLine], grant: Grant) -> Receipt:
    """Sell in one transaction, because a read before the fence may be outdated."""
    with transaction_of(grant):
        return read_and_write(lines)


def transaction_of(grant: Grant | None) -> AbstractContextManager[None]:
    """Open the outermost transaction, which passes the fence if there is a *grant*."""
    return django_distlock.atomic(grant) if grant else transaction.atomic()


#: Whether sales pass the fence: async views can't pass it, but the functions that they run in a thread can.
FENCED = SHOP.guard == DISTRIBUTED and SHOP.fence


def reduce_stock_with(shop: Configuration, fenced: bool) -> Callable[..., Coroutine[Any, Any, HttpResponse]]:
    """Return the view that sells one unit under the guard of *shop*."""

    @require_POST
    @guarded_async(shop, distributed_lock("product_<id>", key_name, fence=False), product_name, refuse)
    async def reduce_stock(request: HttpRequest, id: int) -> HttpResponse:
        """Sell one unit."""
        return await sell(request, [OrderLine(id)], fenced)

    return reduce_stock


reduce_stock = reduce_stock_with(SHOP, FENCED)
#: The views that the page offers, by the last part of their routes.
CHOSEN = {
    slug: reduce_stock_with(choice.furnish(SHOP), FENCED if choice.fence is None else choice.fence)
    for slug, choice in choices(SHOP).items()
}


@require_POST
@guarded_async(
    SHOP, distributed_lock("product_<int:json.lines[].sku>", key_name, fence=False), cart_names, refuse
)
async def checkout(request: HttpRequest) -> HttpResponse:
    """Sell all of a cart, or nothing."""
    return await sell(request, read_cart(request.body), FENCED)


async def sell(request: HttpRequest, lines: Sequence[OrderLine], fenced: bool) -> HttpResponse:
    grant = current_grant() if fenced else None
    if KEY_HEADER in request.headers:
        # The key, the answer and the order are written in one transaction, which has to be one function.
        return await sync_to_async(sell_once)(request, lines, grant)
    return JsonResponse(words.bought(SHOP, await sell_lines(lines, grant)))


def sell_once(request: HttpRequest, lines: Sequence[OrderLine], grant: Grant | None) -> HttpResponse:
    @once
    def answer(request: HttpRequest) -> HttpResponse:
        return JsonResponse(words.bought(SHOP, read_and_write(lines)))

    with transaction_of(grant):
        return answer(request)


# The views that wait for no lock are not async. Django runs them in the database's thread.
urlpatterns = [
    path("", views.storefront, dict(ASYNC_LINES), name="storefront"),
    path("products/<int:id>", views.show_product, name="product"),
    path("products/<int:id>/reduce", reduce_stock, name="reduce-stock"),
    *(path(f"products/<int:id>/reduce/{slug}", view) for slug, view in CHOSEN.items()),
    path("checkout", checkout, name="checkout"),
]
