"""How an async view writes a sale. Django's transactions are none of a coroutine: each is one function."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from asgiref.sync import sync_to_async
from django.db import transaction

import django_distlock
from demo_shop.django_shop.models import Product
from demo_shop.django_shop.selling import SHOP, look_up, read_and_write, record
from demo_shop.sale import Line, Receipt
from distlock import Grant


async def sell(lines: Sequence[Line], grant: Grant | None) -> Receipt:
    """Read the stock, think, write what was read minus what is bought. *grant*: whose fence it passes."""
    if grant:
        return await sync_to_async(sell_fenced)(lines, grant)
    seen = await sync_to_async(read)(lines)
    # Others are served meanwhile. In the thread it would keep them from the database.
    await asyncio.sleep(SHOP.pause)
    return await sync_to_async(write)(lines, seen)


def read(lines: Sequence[Line]) -> Mapping[int, int]:
    return {sku: product.stock for sku, product in look_up(Product.objects.all(), lines).items()}


def write(lines: Sequence[Line], seen: Mapping[int, int]) -> Receipt:
    with transaction.atomic():
        for line in lines:
            Product.objects.filter(pk=line.sku).update(stock=seen[line.sku] - line.quantity)
        return record(lines, seen)


def sell_fenced(lines: Sequence[Line], grant: Grant) -> Receipt:
    """All of it in one transaction: who reads before the fence may read what another is about to change."""
    with transaction_of(grant):
        return read_and_write(lines)


def transaction_of(grant: Grant | None) -> AbstractContextManager[None]:
    """The outermost transaction, which passes the fence of *grant*."""
    return django_distlock.atomic(grant) if grant else transaction.atomic()
