"""The locks of two guards: distlock around a view that is in a transaction, and a row as a lock."""

from __future__ import annotations

import functools
import time
import uuid
from typing import TYPE_CHECKING

from sqlalchemy import Engine, create_engine, delete, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.pool import QueuePool

import distlock
from demo_shop.ledger import database_url, isolation, prepare_sqlite
from demo_shop.tables import LockRow

if TYPE_CHECKING:
    from demo_shop.configuration import Configuration


class PlainLock:
    """One name's lock, for one purchase."""

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
    # As `Configuration.distlock` has it: what differs is only when it lets go.
    return distlock.connect(url, prefix="shop", ttl=ttl)


#: Seconds after which anybody may delete the row.
EXPIRY = 10.0
#: Seconds until a buyer gives up, and between two attempts.
PATIENCE = 20.0
PAUSE = 0.01


class UniqueRow:
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
            # Somebody has it; or two attempts locked each other's gap, and the database chose one to fail.
            return False
        return True

    def release(self) -> None:
        # By owner: after the expiry the row may be somebody else's.
        ours = delete(LockRow).where(LockRow.name == self.name, LockRow.owner == self.owner)
        with self.engine.begin() as connection:
            connection.execute(ours)


@functools.cache
def connect(database: str) -> Engine:
    """Connections of the lock's own: the view's may be in a transaction."""
    engine = create_engine(database_url(database), poolclass=QueuePool, pool_size=64, **isolation(database))
    prepare_sqlite(engine)
    return engine
