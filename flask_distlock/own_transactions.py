"""``transaction(grant, session)``: one's own fenced transaction. Needs SQLAlchemy when it is called."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from distlock.grants.grant import Grant

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, scoped_session


def transaction(
    grant: Grant, session: Session | scoped_session[Any], engine: Engine | None = None
) -> AbstractContextManager[None]:
    """A transaction of SQLAlchemy that is committed only if no later grant's was, and the lock is still ours.

    *grant*: what the ``with`` of a lock gives.
    *session*: a ``Session``, or ``db.session``, that has begun no transaction yet. It is committed at the end
    of the block, and what it knew before is read anew.
    *engine*: whose database has the fence; None: the session's.

    It waits for the transactions of earlier grants for as long as the lock may be waited for: its
    ``timeout``, seconds.

    Raises `LockLost`, and `LockTimeout` after that wait, and rolls back; `NotHeld` after the release;
    `ConfigurationError` where the session has begun a transaction, in async code, and where the lock is a row
    of the database.

    Example::

        with locks.lock("product_1") as grant, transaction(grant, db.session):
            db.session.get(Product, 1).stock = 100
    """
    from flask_distlock.sql import own_transactions

    return own_transactions.transaction(grant, session, engine)
