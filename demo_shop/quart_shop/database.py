"""The database, in one thread: buyers wait for their locks in the event loop, and only work goes there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from demo_shop.configuration import Configuration
from demo_shop.ledger import database_url, isolation, prepare_sqlite
from distlock import Grant
from flask_distlock import transaction

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

SHOP = Configuration.from_environment()
engine = create_engine(database_url(SHOP.database), **isolation(SHOP.database))
prepare_sqlite(engine)
thread = ThreadPoolExecutor(1, "database")


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call *function* in the thread of the database, and wait until it has ended, whatever happens.

    A client who goes away cancels its view, and not what the thread writes: the lock is kept for that.
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
    # Nobody hears of its error any more, and asyncio would log that.
    work.exception()
    raise cancelled


@contextmanager
def transaction_of(grant: Grant | None) -> Iterator[Session]:
    """A transaction, which passes the fence of *grant*."""
    with Session(engine) as session, transaction(grant, session) if grant else session.begin():
        yield session
