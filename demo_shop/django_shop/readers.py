"""Reports that read while purchases write, and a payment gateway that takes five at a time, in Django.

Each guarded view stands beside the same view without the guard.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST, require_safe

from demo_shop import remote_services
from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from demo_shop.django_shop.rush import unlocked
from demo_shop.sale import PRODUCT_ID
from django_distlock import distributed_lock

SHOP: Configuration = settings.SHOP


#: The unlocked purchase, under a lock of all products.
purchase = distributed_lock("catalogue")(unlocked)


@require_safe
def report(request: HttpRequest) -> HttpResponse:
    return add_up()


@require_safe
@distributed_lock("catalogue", mode="shared")
def shared_report(request: HttpRequest) -> HttpResponse:
    return add_up()


def add_up() -> HttpResponse:
    """Read the stock of each product in turn, then the orders.

    Without the lock, a purchase meanwhile may be seen by half: its order, but not the stock that it took.
    """
    began, stock = time.time(), 0
    for number in range(PRODUCT_ID, PRODUCT_ID + SHOP.products):
        stock += Product.objects.get(pk=number).stock
        time.sleep(SHOP.pause)
    sold = Purchase.objects.count()
    return JsonResponse({"stock": stock, "sold": sold, "began": began, "ended": time.time()})


@require_POST
def pay(request: HttpRequest) -> HttpResponse:
    return charge()


@require_POST
@distributed_lock("gateway", limit=remote_services.GATEWAY_LIMIT)
def limited_pay(request: HttpRequest) -> HttpResponse:
    return charge()


def charge() -> HttpResponse:
    paid = remote_services.charge(SHOP)
    return JsonResponse({"paid": paid}, status=200 if paid else 502)
