"""A transaction that is open when a lock is asked for: what the site relies on is not ended in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distlock.current import held
from distlock.errors import ConfigurationError
from flask_distlock.changes import Changes

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def refuse_opened(
    session: Session, changes: Changes, where: str, names: Sequence[str], nested: bool, mine: bool
) -> None:
    """Raise `ConfigurationError` if the transaction of *session* must not be ended before the lock *names*.

    *nested*: a guard is around *where*. *mine*: the code that asks has begun the transaction itself, and may
    rely on what it has read or locked there; otherwise a hook has, as to load the user.
    """
    shown = ", ".join(map(repr, names))
    if nested:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside the transaction of the guard around it: "
            f"name all locks in one place, the outer one: @distributed_lock(…, {shown}), or the rule. "
            "A lock of another alias is named by a decorator of its own above it."
        )
    if _begun(session):
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction that db.session.begin() has "
            "opened, and let go before its COMMIT: write 'with db.session.begin():' inside "
            f"{where}, or @distributed_lock(…) on the function around both."
        )
    if changes.of(session):
        raise ConfigurationError(
            f"db.session has changes that are not committed, and {where} is about to wait for "
            f"{shown}. They would be committed together. Call db.session.commit() or rollback() before."
        )
    if mine:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction of db.session, which the code around "
            "has begun with a query: what it has read may be stale once the lock is there. Take the lock "
            "before the first query, or call db.session.commit() or rollback() before."
        )
    if changes.locking(session):
        raise ConfigurationError(
            f"db.session has locked rows, as with SELECT … FOR UPDATE, and {where} is about to wait for "
            f"{shown}. Lock them in the view, or call db.session.commit() or rollback() before."
        )


def inside_guard() -> bool:
    """Whether a guard is around the running code, which has the transaction."""
    return any(one.running for one in held())


def _begun(session: Session) -> bool:
    """Whether somebody has begun the transaction of *session* in so many words, and means to end it."""
    transaction = session.get_transaction()
    explicit = transaction is not None and transaction.origin.name == "BEGIN"
    return explicit or session.in_nested_transaction()
