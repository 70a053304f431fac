"""How the Quart shop writes a sale. Functions that are not async run in the only thread for the database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from sqlalchemy import create_engine, select, update
from sqlalchemy.orm import Session

from demo_shop import storefront as words
from demo_shop.guards import configured
from demo_shop.ledger import database_url, isolation, prepare_sqlite
from demo_shop.sale import Asked, OrderLine, Receipt, Refusal
from demo_shop.tables import KeyTaken, Product, first_answer, keep_answer, look_up, record, write_answer
from distlock import Grant
from flask_distlock import transaction

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

SHOP = configured()
engine = create_engine(database_url(SHOP.database), **isolation(SHOP.database))
prepare_sqlite(engine)
thread = ThreadPoolExecutor(1, "database")


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call *function* in the thread for the database, and wait for its end, even if this task is cancelled.

    A client that goes away cancels the view, but the thread goes on writing. So the lock is kept until
    *function* has ended.
    """
    work = asyncio.get_running_loop().run_in_executor(thread, function, *arguments)
    cancelled = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    # Retrieve the thread's error, because asyncio would log that it was never retrieved.
    work.exception()
    raise cancelled


@contextmanager
def transaction_of(grant: Grant | None) -> Iterator[Session]:
    """Open a transaction, which passes the fence if there is a *grant*."""
    with Session(engine) as session, transaction(grant, session) if grant else session.begin():
        yield session


async def sell(lines: Sequence[OrderLine], grant: Grant | None) -> Receipt:
    """Read the stock, pause, write what was read minus what is bought. With a *grant*, pass the fence."""
    if grant:
        return await in_thread(sell_fenced, lines, grant)
    seen = await in_thread(read, lines)
    # The event loop serves other requests meanwhile. A pause in the thread would keep them from the database.
    await asyncio.sleep(SHOP.pause)
    return await in_thread(sell_seen, lines, seen)


def read(lines: Sequence[OrderLine]) -> Mapping[int, int]:
    with Session(engine) as session:
        return stocks(session, lines)


def sell_seen(lines: Sequence[OrderLine], seen: Mapping[int, int]) -> Receipt:
    with transaction_of(None) as session:
        return put(session, lines, seen)


def sell_fenced(lines: Sequence[OrderLine], grant: Grant) -> Receipt:
    """Sell in one transaction, because a read before the fence may be outdated."""
    with transaction_of(grant) as session:
        return read_and_write(session, lines)


def sell_once(asked: Asked, lines: Sequence[OrderLine], grant: Grant | None) -> tuple[int, str, bool]:
    """Return status and body of the answer, and whether it was kept for an earlier request with this key."""
    try:
        with transaction_of(grant) as session:
            # Write the key before selling: without a lock, a repetition waits here for the first request.
            write_answer(session, asked)
            try:
                status, body = 200, json.dumps(words.bought(SHOP, read_and_write(session, lines)))
            except Refusal as refusal:
                status, body = refusal.status, json.dumps(refusal.said)
            keep_answer(session, asked, status, body)
            return status, body, False
    except KeyTaken:
        with Session(engine) as session:
            found = first_answer(session, asked)
            return found.status, found.body, True


def read_and_write(session: Session, lines: Sequence[OrderLine]) -> Receipt:
    seen = stocks(session, lines)
    time.sleep(SHOP.pause)
    return put(session, lines, seen)


def stocks(session: Session, lines: Sequence[OrderLine]) -> Mapping[int, int]:
    return {sku: product.stock for sku, product in look_up(session, select(Product), lines).items()}


def put(session: Session, lines: Sequence[OrderLine], seen: Mapping[int, int]) -> Receipt:
    for line in lines:
        left = seen[line.sku] - line.quantity
        session.execute(update(Product).where(Product.id == line.sku).values(stock=left))
    return record(session, SHOP.instance, lines, seen)
