"""The locks of two guards: distlock inside the view's transaction, and a row as a lock."""

from __future__ import annotations

import functools
import time
import uuid

from sqlalchemy import Engine, create_engine, delete, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.pool import QueuePool

import distlock
from demo_shop.configuration import Configuration
from demo_shop.ledger import database_url, isolation, prepare_sqlite
from demo_shop.tables import LockRow


class PlainLock:
    """The distributed lock of one name, for a decorator that knows nothing of transactions."""

    def __init__(self, client: distlock.Locks, name: str) -> None:
        self.lock = client.lock(name)

    def acquire(self) -> bool:
        try:
            return self.lock.acquire() is not None
        except distlock.TooManyWaiters:
            return False

    def release(self) -> None:
        self.lock.release()


def plain_lock(shop: Configuration, name: str) -> PlainLock:
    return PlainLock(_client(shop.lock, shop.lock_ttl), name)


@functools.cache
def _client(url: str, ttl: float) -> distlock.Locks:
    # The settings are those of `Configuration.distlock`, so that only the moment of the release differs.
    return distlock.connect(url, prefix="shop", ttl=ttl)


#: Anybody may delete the row after this many seconds.
EXPIRY = 10.0
#: Seconds until a buyer gives up.
PATIENCE = 20.0
#: Seconds between two attempts.
PAUSE = 0.01


class UniqueRow:
    """A lock that is a row: `acquire` inserts it, and `release` deletes it.

    The row has an expiry, so that a crash does not lock a product for ever. The lock has four faults. No
    thread renews the row, so a view that takes longer than `EXPIRY` loses the lock. Each machine judges the
    expiry by its own clock. Waiters poll, so the load grows with their number, and luck decides which one is
    next. A holder that has lost the lock does not learn of it.
    """

    def __init__(self, database: str, name: str) -> None:
        self.engine, self.name, self.owner = connect(database), name, str(uuid.uuid4())

    def acquire(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not self.insert():
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)
        return True

    def insert(self) -> bool:
        expired = delete(LockRow).where(LockRow.name == self.name, LockRow.expires_at < time.time())
        row = insert(LockRow).values(name=self.name, owner=self.owner, expires_at=time.time() + EXPIRY)
        try:
            with self.engine.begin() as connection:
                connection.execute(expired)
                connection.execute(row)
        except (IntegrityError, OperationalError):
            # The row exists; or two attempts locked each other's gap, and the database made one of them fail.
            return False
        return True

    def release(self) -> None:
        # Delete only our own row, because after its expiry another purchase may have replaced it.
        ours = delete(LockRow).where(LockRow.name == self.name, LockRow.owner == self.owner)
        with self.engine.begin() as connection:
            connection.execute(ours)


@functools.cache
def connect(database: str) -> Engine:
    """Return an engine for lock rows alone, because the view's connection may be in a transaction."""
    engine = create_engine(database_url(database), poolclass=QueuePool, pool_size=64, **isolation(database))
    prepare_sqlite(engine)
    return engine
