"""One product that all buyers want, in Django, sold in five ways.

Each view is whole, to be read and copied by itself. All write the same two rows: the stock, and an order.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_POST

from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from django_distlock import distributed_lock

SHOP: Configuration = settings.SHOP


@require_POST
def unlocked(request: HttpRequest, id: int) -> HttpResponse:
    product = get_object_or_404(Product, pk=id)
    if product.stock < 1:
        return sold_out()
    with transaction.atomic():
        product.stock -= 1
        product.save(update_fields=["stock"])
        return order(id, unit=product.stock + 1)


@require_POST
def conditional(request: HttpRequest, id: int) -> HttpResponse:
    with transaction.atomic():
        enough = Product.objects.filter(pk=id, stock__gte=1)
        if not enough.update(stock=F("stock") - 1):
            return sold_out()
        return order(id, unit=0)  # The view does not read which unit it sells.


@require_POST
def for_update(request: HttpRequest, id: int) -> HttpResponse:
    with transaction.atomic():
        product = get_object_or_404(Product.objects.select_for_update(), pk=id)
        if product.stock < 1:
            return sold_out()
        product.stock -= 1
        product.save(update_fields=["stock"])
        return order(id, unit=product.stock + 1)


@require_POST
@distributed_lock("product_<id>")
def locked(request: HttpRequest, id: int) -> HttpResponse:
    product = get_object_or_404(Product, pk=id)
    if product.stock < 1:
        return sold_out()
    with transaction.atomic():
        product.stock -= 1
        product.save(update_fields=["stock"])
        return order(id, unit=product.stock + 1)


@require_POST
@distributed_lock("product_<id>", fence=True, batch=32)
def batched(request: HttpRequest, id: int) -> HttpResponse:
    product = get_object_or_404(Product, pk=id)
    if product.stock < 1:
        return sold_out()
    product.stock -= 1
    product.save(update_fields=["stock"])
    return order(id, unit=product.stock + 1)


def order(id: int, unit: int) -> HttpResponse:
    """Write the order, in the transaction that wrote the stock."""
    written = Purchase.objects.create(
        product_id=id,
        order_number=str(uuid.uuid4()),
        instance=SHOP.instance,
        stock_seen=unit,
        created_at=timezone.now(),
    )
    return JsonResponse({"order": written.order_number, "instance": SHOP.instance})


def sold_out() -> HttpResponse:
    return JsonResponse({"code": "sold_out", "title": "Sold out"}, status=409)


VIEWS = {view.__name__: view for view in (unlocked, conditional, for_update, locked, batched)}
