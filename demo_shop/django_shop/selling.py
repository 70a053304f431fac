"""How the Django shop writes a sale: in several ways, and once for each ``Idempotency-Key``."""

from __future__ import annotations

import functools
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import KeptAnswer, Product, Purchase
from demo_shop.sale import (
    KEY_HEADER,
    REPLAYED,
    Asked,
    OrderLine,
    Receipt,
    Refusal,
    check_stock,
    lock_names,
    no_such_product,
    overtaken,
    reach,
    read_asked,
    sold_out,
)

SHOP: Configuration = settings.SHOP
RETRIES = 100


def read_and_write(lines: Sequence[OrderLine]) -> Receipt:
    """Read the stock, pause, write what was read minus what is bought. Only a lock makes this safe."""
    products = look_up(Product.objects.all(), lines)
    seen = {sku: product.stock for sku, product in products.items()}
    reach(SHOP, "read", stock=seen)
    time.sleep(SHOP.pause)
    # Read before the transaction begins. Inside of it, SQLite would refuse a write after an outdated read,
    # which would hide the race.
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=seen[line.sku] - line.quantity)
        reach(SHOP, "wrote", stock={line.sku: seen[line.sku] - line.quantity for line in lines})
        transaction.on_commit(partial(reach, SHOP, "committed"))
        return record(lines, seen)


def subtract(lines: Sequence[OrderLine]) -> Receipt:
    """Read, check, and let the database subtract. Only a lock makes this safe."""
    products = look_up(Product.objects.all(), lines)
    time.sleep(SHOP.pause)
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=F("stock") - line.quantity)
        return record(lines, {sku: product.stock for sku, product in products.items()})


def for_update(lines: Sequence[OrderLine]) -> Receipt:
    """Let the database lock the rows from the read to COMMIT."""
    with transaction.atomic():
        products = look_up(Product.objects.select_for_update().order_by("pk"), lines)
        time.sleep(SHOP.pause)
        for line in lines:
            products[line.sku].stock -= line.quantity
            products[line.sku].save(update_fields=["stock"])
        return record(lines, {line.sku: products[line.sku].stock + line.quantity for line in lines})


def conditional(lines: Sequence[OrderLine]) -> Receipt:
    """Check and write the stock of a product in one statement."""
    time.sleep(SHOP.pause)
    seen = {}
    with transaction.atomic():
        for line in lines:
            product = Product.objects.filter(pk=line.sku)
            if not product.filter(stock__gte=line.quantity).update(stock=F("stock") - line.quantity):
                raise sold_out() if product.exists() else no_such_product()
            seen[line.sku] = product.get().stock + line.quantity
        return record(lines, seen)


def optimistic(lines: Sequence[OrderLine]) -> Receipt:
    """Write if the version is the one that was read; otherwise begin again."""
    for _ in range(RETRIES):
        products = look_up(Product.objects.all(), lines)
        time.sleep(SHOP.pause)
        try:
            with transaction.atomic():
                for line in lines:
                    write_version(products[line.sku], line.quantity)
                return record(lines, {sku: product.stock for sku, product in products.items()})
        except StaleVersion:
            # The pause is random, so that not all try again at once.
            time.sleep(random.random() * SHOP.pause)
    raise overtaken()


class StaleVersion(Exception):
    """Another purchase has written the product since this one read it."""


def write_version(read: Product, quantity: int) -> None:
    unchanged = Product.objects.filter(pk=read.pk, version=read.version)
    if not unchanged.update(stock=read.stock - quantity, version=read.version + 1):
        raise StaleVersion


def look_up(products: QuerySet[Product], lines: Sequence[OrderLine]) -> Mapping[int, Product]:
    found = {product.pk: product for product in products.filter(pk__in=[line.sku for line in lines])}
    check_stock(lines, {sku: product.stock for sku, product in found.items()})
    return found


def record(lines: Sequence[OrderLine], seen: Mapping[int, int]) -> Receipt:
    """Write the order, inside the transaction that wrote the stock."""
    number = str(uuid.uuid4())
    Purchase.objects.bulk_create(
        Purchase(
            product_id=line.sku,
            quantity=line.quantity,
            order_number=number,
            instance=SHOP.instance,
            stock_seen=seen[line.sku],
            created_at=timezone.now(),
        )
        for line in lines
    )
    return Receipt(number, seen)


WAYS: dict[str, Callable[[Sequence[OrderLine]], Receipt]] = {
    way.__name__: way for way in (read_and_write, subtract, for_update, conditional, optimistic)
}


View = Callable[..., HttpResponse]


def key_name(request: HttpRequest, **_: Any) -> Iterable[str]:
    return lock_names(request.headers.get(KEY_HEADER))


def once(view: View) -> View:
    """Decorate *view*: if the request has a key, commit the changes and the answer in one transaction.

    The answer is kept for repetitions. The lock's decorator has to be above this one.
    """

    @functools.wraps(view)
    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        same = (request.method or "", request.path, request.META["QUERY_STRING"], request.body)
        asked = read_asked(request.headers.get(KEY_HEADER), *same)
        if asked is None:
            return view(request, **kwargs)
        with transaction.atomic():
            # Write the key before selling: without a lock, a repetition waits here for the first request.
            if not claimed(asked):
                return replay(asked)
            try:
                response = view(request, **kwargs)
            except Refusal as refusal:
                response = refuse(refusal)
            if response.status_code >= 500:
                transaction.set_rollback(True)
            else:
                keep(asked, response)
            return response

    return answer


def claimed(asked: Asked) -> bool:
    """Store the key, and return whether it was new."""
    try:
        with transaction.atomic():
            KeptAnswer.objects.create(
                key=asked.key, fingerprint=asked.fingerprint, status=0, body="", created_at=timezone.now()
            )
    except IntegrityError:
        return False
    return True


def keep(asked: Asked, response: HttpResponse) -> None:
    body = response.content.decode()
    KeptAnswer.objects.filter(pk=asked.key).update(status=response.status_code, body=body)


def replay(asked: Asked) -> HttpResponse:
    first = KeptAnswer.objects.get(pk=asked.key)
    asked.refuse_another(first.fingerprint)
    headers = {REPLAYED: "true"}
    return HttpResponse(first.body, status=first.status, headers=headers, content_type="application/json")


def refuse(refusal: Refusal) -> HttpResponse:
    return JsonResponse(refusal.said, status=refusal.status)
