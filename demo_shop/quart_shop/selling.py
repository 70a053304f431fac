"""How the Quart shop writes a sale. Each function but `sell` runs in the thread of the database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from demo_shop import storefront as words
from demo_shop.answers import Taken, first, keep, write
from demo_shop.once import Asked
from demo_shop.quart_shop.database import SHOP, engine, in_thread, transaction_of
from demo_shop.rows import look_up, record
from demo_shop.sale import Line, Receipt, Refusal
from demo_shop.tables import Product
from distlock import Grant


async def sell(lines: Sequence[Line], grant: Grant | None) -> Receipt:
    """Read the stock, think, write what was read minus what is bought. *grant*: whose fence it passes."""
    if grant:
        return await in_thread(sell_fenced, lines, grant)
    seen = await in_thread(read, lines)
    # Others are served meanwhile. In the thread it would keep them from the database.
    await asyncio.sleep(SHOP.pause)
    return await in_thread(sell_seen, lines, seen)


def read(lines: Sequence[Line]) -> Mapping[int, int]:
    with Session(engine) as session:
        return stocks(session, lines)


def sell_seen(lines: Sequence[Line], seen: Mapping[int, int]) -> Receipt:
    with transaction_of(None) as session:
        return put(session, lines, seen)


def sell_fenced(lines: Sequence[Line], grant: Grant) -> Receipt:
    """All of it in one transaction: who reads before the fence may read what another is about to change."""
    with transaction_of(grant) as session:
        return read_and_write(session, lines)


def sell_once(asked: Asked, lines: Sequence[Line], grant: Grant | None) -> tuple[int, str, bool]:
    """Status and body, and whether they were those of an earlier request with this key."""
    try:
        with transaction_of(grant) as session:
            # Before everything else: where no lock helps, a second one waits here for the first.
            write(session, asked)
            try:
                status, body = 200, json.dumps(words.bought(SHOP, read_and_write(session, lines)))
            except Refusal as refusal:
                status, body = refusal.status, json.dumps(refusal.said)
            keep(session, asked, status, body)
            return status, body, False
    except Taken:
        with Session(engine) as session:
            found = first(session, asked)
            return found.status, found.body, True


def read_and_write(session: Session, lines: Sequence[Line]) -> Receipt:
    seen = stocks(session, lines)
    time.sleep(SHOP.pause)
    return put(session, lines, seen)


def stocks(session: Session, lines: Sequence[Line]) -> Mapping[int, int]:
    return {sku: product.stock for sku, product in look_up(session, select(Product), lines).items()}


def put(session: Session, lines: Sequence[Line], seen: Mapping[int, int]) -> Receipt:
    for line in lines:
        left = seen[line.sku] - line.quantity
        session.execute(update(Product).where(Product.id == line.sku).values(stock=left))
    return record(session, SHOP.instance, lines, seen)
