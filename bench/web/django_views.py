"""Django views, one for each of `bench.web.WAYS`, which read and write the same rows."""

from __future__ import annotations

import uuid

import redis
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone

from bench.locks import MOST, PATIENCE, TTL
from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from django_distlock import distributed_lock

SHOP: Configuration = settings.SHOP
REDIS = redis.Redis.from_url(SHOP.lock, max_connections=MOST)


def answer(text: bytes, status: int = 200) -> HttpResponse:
    return HttpResponse(text, status=status, headers={"Content-Length": str(len(text))})


def order(sku: int, seen: int) -> HttpResponse:
    Purchase.objects.create(
        product_id=sku,
        order_number=str(uuid.uuid4()),
        instance=SHOP.instance,
        stock_seen=seen,
        created_at=timezone.now(),
    )
    return answer(b"sold")


def sell(sku: int, for_update: bool = False) -> HttpResponse:
    """Read the stock, check it, and write it and an order, in the open transaction."""
    found = Product.objects.select_for_update() if for_update else Product.objects.all()
    product = found.get(pk=sku)
    if product.stock < 1:
        return answer(b"sold out", 409)
    Product.objects.filter(pk=sku).update(stock=product.stock - 1)
    return order(sku, product.stock)


@distributed_lock("product_<sku>")
@transaction.atomic
def locked(request: HttpRequest, sku: int) -> HttpResponse:
    return sell(sku)


@distributed_lock("product_<sku>", fence=True)
def fenced(request: HttpRequest, sku: int) -> HttpResponse:
    return sell(sku)


@distributed_lock("product_<sku>", fence=True, batch=32)
def in_batches(request: HttpRequest, sku: int) -> HttpResponse:
    return sell(sku)


def with_redis_py(request: HttpRequest, sku: int) -> HttpResponse:
    lock = REDIS.lock(f"redis-py:product_{sku}", timeout=TTL, blocking_timeout=PATIENCE)
    with lock, transaction.atomic():
        return sell(sku)


@transaction.atomic
def for_update(request: HttpRequest, sku: int) -> HttpResponse:
    return sell(sku, for_update=True)


@transaction.atomic
def advisory(request: HttpRequest, sku: int) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [sku])
    return sell(sku)


@transaction.atomic
def conditional(request: HttpRequest, sku: int) -> HttpResponse:
    """Check and write in one statement."""
    if not Product.objects.filter(pk=sku, stock__gte=1).update(stock=F("stock") - 1):
        return answer(b"sold out", 409)
    return order(sku, 0)


def show(request: HttpRequest, sku: int) -> HttpResponse:
    return answer(str(Product.objects.get(pk=sku).stock).encode())


urlpatterns = [
    path("products/<int:sku>", show),
    path("distlock/<int:sku>", locked),
    path("distlock-fence/<int:sku>", fenced),
    path("distlock-batch/<int:sku>", in_batches),
    path("redis-py/<int:sku>", with_redis_py),
    path("for-update/<int:sku>", for_update),
    path("advisory/<int:sku>", advisory),
    path("conditional/<int:sku>", conditional),
]
