"""A transaction that is open when a lock is asked for: what the site relies on is not ended in silence."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session

from distlock.errors import ConfigurationError
from distlock.web.stack import STACK
from flask_distlock.sql.changes import Changes, Work


def refuse_opened(
    session: Session, changes: Changes, where: str, names: Sequence[str], nested: bool, mine: Work | None
) -> None:
    """Raise `ConfigurationError` if the transaction of *session* must not be ended before the lock *names*.

    *nested*: a guard is around *where*. *mine*: what the code that asks has done there itself, and may rely
    on; None: all of it was a hook's, as to load the user.
    """
    shown = ", ".join(map(repr, names))
    if nested:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside the transaction of the guard around it: "
            f"name all locks in one place, the outer one: @distributed_lock(…, {shown}), or the rule. "
            f"{STACK}"
        )
    if _begun(session):
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction that db.session.begin() has "
            "opened, and released before its COMMIT: write 'with db.session.begin():' inside "
            f"{where}, or @distributed_lock(…) on the function around both."
        )
    if changes.of(session):
        raise ConfigurationError(
            f"db.session has changes that are not committed, and {where} is about to wait for "
            f"{shown}. They would be committed together. Call db.session.commit() or rollback() before."
        )
    if joins(session):
        # A lock that is held there belongs to the code that has begun it, and stays.
        return
    locks = changes.holds_locks(session)
    if locks or (mine is not None and mine.acts):
        raise ConfigurationError(
            f"{where} is about to wait for {shown} inside a transaction of db.session which has locked rows "
            "or a table, as with SELECT … FOR UPDATE, has an advisory lock, or has set something, as with "
            "SET LOCAL. Ending it would release that. Do that under the lock, or call db.session.commit() or "
            "rollback() before."
        )
    if mine is not None and locks is None:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction of db.session, which the code around "
            "has begun with a query, and the database can't tell what it has locked there. Take the lock "
            "before the first query, or call db.session.commit() or rollback() before."
        )


def joins(session: Session) -> bool:
    """Whether *session* takes part in a transaction that somebody else has begun, as a test around it."""
    try:
        return isinstance(session.get_bind(), Connection)
    except UnboundExecutionError:
        return False


def _begun(session: Session) -> bool:
    """Whether somebody has begun the transaction of *session* in so many words, and means to end it."""
    transaction = session.get_transaction()
    explicit = transaction is not None and transaction.origin.name == "BEGIN"
    return explicit or session.in_nested_transaction()
