"""How the Django shop writes a sale: in several ways, of which the first two need a lock around them."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from demo_shop.configuration import Configuration
from demo_shop.django_shop.models import Product, Purchase
from demo_shop.moments import reach
from demo_shop.sale import Line, Receipt, check_stock, no_such_product, overtaken, sold_out

SHOP: Configuration = settings.SHOP
RETRIES = 100


def read_and_write(lines: Sequence[Line]) -> Receipt:
    """Read the stock, think, write what was read minus what is bought. Only a lock makes this safe."""
    products = look_up(Product.objects.all(), lines)
    seen = {sku: product.stock for sku, product in products.items()}
    reach(SHOP, "read", stock=seen)
    time.sleep(SHOP.pause)
    # The read stays outside of the transaction: SQLite refuses to write what it read in an older snapshot,
    # and that refusal would hide the race which this shop is there to show.
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=seen[line.sku] - line.quantity)
        reach(SHOP, "wrote", stock={line.sku: seen[line.sku] - line.quantity for line in lines})
        transaction.on_commit(partial(reach, SHOP, "committed"))
        return record(lines, seen)


def subtract(lines: Sequence[Line]) -> Receipt:
    """The article's way: read, check, and let the database subtract. Only a lock makes this safe."""
    products = look_up(Product.objects.all(), lines)
    time.sleep(SHOP.pause)
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=F("stock") - line.quantity)
        return record(lines, {sku: product.stock for sku, product in products.items()})


def for_update(lines: Sequence[Line]) -> Receipt:
    """The database locks the rows until COMMIT."""
    with transaction.atomic():
        products = look_up(Product.objects.select_for_update().order_by("pk"), lines)
        time.sleep(SHOP.pause)
        for line in lines:
            products[line.sku].stock -= line.quantity
            products[line.sku].save(update_fields=["stock"])
        return record(lines, {line.sku: products[line.sku].stock + line.quantity for line in lines})


def conditional(lines: Sequence[Line]) -> Receipt:
    """One statement checks and writes."""
    time.sleep(SHOP.pause)
    seen = {}
    with transaction.atomic():
        for line in lines:
            product = Product.objects.filter(pk=line.sku)
            if not product.filter(stock__gte=line.quantity).update(stock=F("stock") - line.quantity):
                raise sold_out() if product.exists() else no_such_product()
            seen[line.sku] = product.get().stock + line.quantity
        return record(lines, seen)


def optimistic(lines: Sequence[Line]) -> Receipt:
    """A purchase that finds another version than it read begins again."""
    for _ in range(RETRIES):
        products = look_up(Product.objects.all(), lines)
        time.sleep(SHOP.pause)
        try:
            with transaction.atomic():
                for line in lines:
                    write_version(products[line.sku], line.quantity)
                return record(lines, {sku: product.stock for sku, product in products.items()})
        except Stale:
            # Not all at once again.
            time.sleep(random.random() * SHOP.pause)
    raise overtaken()


class Stale(Exception):
    """Somebody wrote since we read."""


def write_version(read: Product, quantity: int) -> None:
    unchanged = Product.objects.filter(pk=read.pk, version=read.version)
    if not unchanged.update(stock=read.stock - quantity, version=read.version + 1):
        raise Stale


def look_up(products: QuerySet[Product], lines: Sequence[Line]) -> Mapping[int, Product]:
    found = {product.pk: product for product in products.filter(pk__in=[line.sku for line in lines])}
    check_stock(lines, {sku: product.stock for sku, product in found.items()})
    return found


def record(lines: Sequence[Line], seen: Mapping[int, int]) -> Receipt:
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


WAYS: dict[str, Callable[[Sequence[Line]], Receipt]] = {
    way.__name__: way for way in (read_and_write, subtract, for_update, conditional, optimistic)
}
