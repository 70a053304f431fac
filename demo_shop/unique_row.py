"""The lock that is a row: insert it to lock, delete it to release.

Its row has an expiry, so that a crash does not lock a product for ever. What it lacks: nobody renews the row,
so a body that outlives `EXPIRY` shares its product; the expiry is judged by each machine's own clock; waiting
is asking again and again, so that the database is busiest where the crowd is largest, and who comes first is
luck; and a holder that was overtaken is not told.
"""

from __future__ import annotations

import functools
import time
import uuid

from sqlalchemy import Engine, create_engine, delete, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.pool import QueuePool

from demo_shop.ledger import database_url, isolation, prepare_sqlite
from demo_shop.tables import LockRow

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
