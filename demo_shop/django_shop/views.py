"""The Django shop."""

from __future__ import annotations

import time
import uuid

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from demo_shop import storefront as words
from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from demo_shop.guards import guarded
from demo_shop.ledger import PRODUCT_ID
from django_distlock import distributed_lock

SHOP: Configuration = settings.SHOP


@require_POST
@guarded(SHOP.guard, distributed_lock("product_<id>"))
def reduce_stock(request: HttpRequest, id: int) -> HttpResponse:
    """Sell one unit: read the stock, think, write what was read minus one. Only a lock makes this safe."""
    product = Product.objects.filter(pk=id).first()
    if product is None:
        return JsonResponse(words.NO_SUCH_PRODUCT, status=404)
    stock = product.stock
    if stock <= 0:
        return JsonResponse(words.SOLD_OUT, status=409)
    time.sleep(SHOP.pause)
    # The read stays outside of the transaction: SQLite refuses to write what it read in an older snapshot,
    # and that refusal would hide the race which this shop is there to show.
    with transaction.atomic():
        product.stock = stock - 1
        product.save(update_fields=["stock"])
        order = Purchase.objects.create(
            product=product,
            order_number=str(uuid.uuid4()),
            instance=SHOP.instance,
            stock_seen=stock,
            created_at=timezone.now(),
        )
    return JsonResponse(words.bought(SHOP, order))


@require_safe
def show_product(request: HttpRequest, id: int) -> HttpResponse:
    product = Product.objects.filter(pk=id).first()
    if product is None:
        return JsonResponse(words.NO_SUCH_PRODUCT, status=404)
    return JsonResponse(describe(product))


@require_safe
def storefront(request: HttpRequest) -> HttpResponse:
    product = Product.objects.get(pk=PRODUCT_ID)
    return render(request, "storefront.html", {"product": describe(product)})


def describe(product: Product) -> dict[str, object]:
    orders = Purchase.objects.filter(product=product)
    return words.describe(SHOP, product, orders.count(), orders.order_by("-id")[: words.RECENT])
