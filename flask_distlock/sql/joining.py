"""Sessions that take part in the transaction of a batch: in its context each has the one connection.

A session on a connection whose transaction is open begins a savepoint in it, and ``commit()`` ends that
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from distlock.errors import ConfigurationError

#: The connection that the sessions of the running code have in common with those of others.
shared_connection: ContextVar[Connection | None] = ContextVar("distlock_shared_connection", default=None)

_OURS = "_distlock_joins"


@contextmanager
def joined(connection: Connection) -> Iterator[None]:
    """The sessions of the block, those of this context, take part in the transaction of *connection*."""
    before = shared_connection.set(connection)
    try:
        yield
    finally:
        shared_connection.reset(before)


def let_join(session: scoped_session[Session], where: str) -> None:
    """Let what *session* makes obey `joined`. Raises `ConfigurationError` where that can't be.

    By their class: ``db.session.remove()`` in a view makes another session.
    """
    factory = session.session_factory
    if not isinstance(factory, sessionmaker):
        raise ConfigurationError(
            f"{where} has batch=, and db.session is not made by SQLAlchemy's sessionmaker: leave batch= out."
        )
    # The maker has made it for itself: nobody else has sessions of it.
    cls: Any = factory.class_
    if hasattr(cls, _OURS):
        return
    cls.get_bind = _joining(cls.get_bind)
    setattr(cls, _OURS, True)


def _joining(get_bind: Callable[..., Engine | Connection]) -> Callable[..., Engine | Connection]:
    def get_bind_or_join(self: Session, *args: Any, **kwargs: Any) -> Engine | Connection:
        found = get_bind(self, *args, **kwargs)
        connection = shared_connection.get()
        if connection is None or not isinstance(found, Engine):
            return found
        if found.pool is not connection.engine.pool:
            raise ConfigurationError(
                f"A view with batch= uses {found.url.render_as_string()}, which is another database than the "
                "one whose transaction it shares, and would be committed before that: leave batch= out."
            )
        self.join_transaction_mode = "create_savepoint"
        return connection

    return get_bind_or_join
