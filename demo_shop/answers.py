"""The answers that `demo_shop.once` keeps, as rows, by SQLAlchemy, in a session of the caller's."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import CursorResult, insert, update
from sqlalchemy.exc import IntegrityError

from demo_shop.once import Asked
from demo_shop.rows import AnySession
from demo_shop.tables import Answer


class Taken(Exception):
    """The key is in the database already."""


def write(session: AnySession, asked: Asked, status: int = 0, body: str = "") -> None:
    """Raises `Taken`; then the transaction has to be rolled back."""
    row = {"status": status, "body": body, "created_at": datetime.now(UTC)}
    try:
        session.execute(insert(Answer).values(key=asked.key, fingerprint=asked.fingerprint, **row))
    except IntegrityError as error:
        raise Taken from error


def keep(session: AnySession, asked: Asked, status: int, body: str) -> None:
    """What is answered to each later request with this key. A failure of the shop's is not."""
    if status >= 500:
        return
    done = session.execute(update(Answer).where(Answer.key == asked.key).values(status=status, body=body))
    assert isinstance(done, CursorResult)
    if not done.rowcount:
        # The view has rolled back, and the key with it.
        write(session, asked, status, body)


def first(session: AnySession, asked: Asked) -> Answer:
    """What was answered first. Raises `Refusal` if that was to another request."""
    found = session.get_one(Answer, asked.key)
    asked.refuse_another(found.fingerprint)
    return found
