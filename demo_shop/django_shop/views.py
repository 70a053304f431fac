"""The views of the Django shop. The last two are taken from articles about overselling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST, require_safe

from demo_shop import remote_services
from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from demo_shop.django_shop.selling import WAYS, key_name, once, refuse, subtract
from demo_shop.guards import GUARDS, guarded
from demo_shop.sale import (
    PRODUCT_ID,
    OrderLine,
    Refusal,
    no_goods,
    no_such_product,
    product_names,
    read_cart,
    read_id,
)
from demo_shop.storefront import choices
from django_distlock import distributed_lock

SHOP: Configuration = settings.SHOP
sell = WAYS[GUARDS[SHOP.guard].way]


def product_name(request: HttpRequest, id: int) -> Iterable[str]:
    return [f"product_{id}"]


def cart_names(request: HttpRequest) -> Iterable[str]:
    return product_names(read_cart(request.body))


def reduce_stock_with(shop: Configuration, fence: bool | None = None) -> Callable[..., HttpResponse]:
    """Return the view that sells one unit under the guard of *shop*."""
    sell = WAYS[GUARDS[shop.guard].way]

    @require_POST
    @guarded(shop, distributed_lock("product_<id>", key_name, fence=fence), product_name, refuse)
    @once
    def reduce_stock(request: HttpRequest, id: int) -> HttpResponse:
        """Sell one unit."""
        return JsonResponse(words.bought(SHOP, sell([OrderLine(id)])))

    return reduce_stock


reduce_stock = reduce_stock_with(SHOP)
#: The views that the page offers, by the last part of their routes.
CHOSEN = {
    slug: reduce_stock_with(choice.furnish(SHOP), choice.fence) for slug, choice in choices(SHOP).items()
}


@require_POST
@guarded(SHOP, distributed_lock("product_<int:json.lines[].sku>", key_name), cart_names, refuse)
@once
def checkout(request: HttpRequest) -> HttpResponse:
    """Sell all of a cart, or nothing."""
    return JsonResponse(words.bought(SHOP, sell(read_cart(request.body))))


@require_safe
def show_product(request: HttpRequest, id: int) -> HttpResponse:
    product = Product.objects.filter(pk=id).first()
    return JsonResponse(describe(product)) if product else refuse(no_such_product())


@require_safe
def storefront(request: HttpRequest, **lines: str) -> HttpResponse:
    """Show the page. *lines*: the lines of choices whose code differs in this instance, by slug."""
    product = Product.objects.get(pk=PRODUCT_ID)
    shown = {"product": describe(product), "page": words.page(SHOP, lines)}
    return render(request, "storefront.html", shown)


def describe(product: Product) -> dict[str, object]:
    shelf = Product.objects.order_by("pk")
    sold = Purchase.objects.filter(product=product).count()
    recent = Purchase.objects.order_by("-id")[: words.RECENT]
    return words.describe(SHOP, product, shelf, sold, recent)


# These views are as the articles describe them, but with the guard of this shop.
log = logging.getLogger("shop")
# The article subtracts in the database. A guard that needs another way of writing has it here, too.
take = subtract if sell is WAYS["read_and_write"] else sell


def stock_name(request: HttpRequest) -> Iterable[str]:
    return [f"product_{read_id(request.GET.get('id'))}"]


def goods_name(request: HttpRequest) -> Iterable[str]:
    return [remote_services.GOODS]


@require_GET
@guarded(SHOP, distributed_lock("product_<int:query.id>"), stock_name, refuse)
def reduce_stock_of_query(request: HttpRequest) -> HttpResponse:
    """Answer ``GET /stock/reduce?id=1`` with OK to all buyers; only the log says which buyers got nothing."""
    line = OrderLine(read_id(request.GET.get("id")))
    try:
        take([line])
    except Refusal as refusal:
        log.info("product %s: %s", line.sku, refusal)
    return HttpResponse("OK")


@require_GET
@guarded(SHOP, distributed_lock(remote_services.GOODS), goods_name, refuse)
def kill(request: HttpRequest) -> HttpResponse:
    if not SHOP.goods:
        raise no_goods()
    return HttpResponse(remote_services.kill(SHOP))
