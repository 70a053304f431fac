"""``db.session.begin()`` in a view whose transaction the fence has begun already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction


@contextmanager
def beginnable(session: Session) -> Iterator[None]:
    """In the block `session.begin()` gives the open transaction, the first time it is called.

    SQLAlchemy would say that one is begun already. The site has not: ``with db.session.begin():`` is how many
    views write, and the fence has to be in their transaction.
    """
    if "begin" in vars(session):
        # That of a guard around this one.
        yield
        return
    begin, fenced = session.begin, session.get_transaction()

    def first(nested: bool = False) -> SessionTransaction:
        nonlocal fenced
        mine, fenced = fenced, None
        if not nested and mine is not None and mine is session.get_transaction():
            return mine
        return begin(nested)

    session.begin = first  # type: ignore[method-assign]
    try:
        yield
    finally:
        del session.begin
