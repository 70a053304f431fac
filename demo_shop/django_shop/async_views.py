"""The Django shop as ASGI: its views wait for the lock in the event loop, and sell in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from demo_shop import storefront as words
from demo_shop.async_guards import guarded
from demo_shop.choices import choices
from demo_shop.configuration import Configuration
from demo_shop.django_shop import async_selling
from demo_shop.django_shop.once import key_name, once, refuse
from demo_shop.django_shop.selling import read_and_write
from demo_shop.django_shop.views import SHOP, cart_names, product_name
from demo_shop.guards import DISTRIBUTED
from demo_shop.once import HEADER
from demo_shop.sale import Line, read_cart
from distlock import Grant, current_grant
from django_distlock import distributed_lock

#: What async views can't pass, and the functions that they run in a thread can.
FENCED = SHOP.guard == DISTRIBUTED and SHOP.fence


def reduce_stock_with(shop: Configuration, fenced: bool) -> Callable[..., Coroutine[Any, Any, HttpResponse]]:
    """The view that sells one unit, with the guard that *shop* names around it."""

    @require_POST
    @guarded(shop, distributed_lock("product_<id>", key_name, fence=False), product_name, refuse)
    async def reduce_stock(request: HttpRequest, id: int) -> HttpResponse:
        """Sell one unit."""
        return await sell(request, [Line(id)], fenced)

    return reduce_stock


reduce_stock = reduce_stock_with(SHOP, FENCED)
#: For the page, by the last part of their routes.
CHOSEN = {
    slug: reduce_stock_with(choice.furnish(SHOP), FENCED if choice.fence is None else choice.fence)
    for slug, choice in choices(SHOP).items()
}


@require_POST
@guarded(SHOP, distributed_lock("product_<int:json.lines[].sku>", key_name, fence=False), cart_names, refuse)
async def checkout(request: HttpRequest) -> HttpResponse:
    """Sell all of a cart, or nothing."""
    return await sell(request, read_cart(request.body), FENCED)


async def sell(request: HttpRequest, lines: Sequence[Line], fenced: bool) -> HttpResponse:
    grant = current_grant() if fenced else None
    if HEADER in request.headers:
        # The key, the answer and the order are one transaction, and one transaction is one function.
        return await sync_to_async(sell_once)(request, lines, grant)
    return JsonResponse(words.bought(SHOP, await async_selling.sell(lines, grant)))


def sell_once(request: HttpRequest, lines: Sequence[Line], grant: Grant | None) -> HttpResponse:
    @once
    def answer(request: HttpRequest) -> HttpResponse:
        return JsonResponse(words.bought(SHOP, read_and_write(lines)))

    with async_selling.transaction_of(grant):
        return answer(request)
