"""``transaction(grant, session)``: a fenced transaction for code that has no guard, such as tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session, scoped_session

from distlock.errors import ConfigurationError
from distlock.fence.passing import begin_fenced, refuse_unfit, time_left
from distlock.fence.row import RolledBack
from distlock.fence.trouble import is_failed
from distlock.grants.grant import Grant
from flask_distlock.binds import DEFAULT_BIND
from flask_distlock.sql.fence_row import FenceConnection, make_table, refuse_autocommit, watch


@contextmanager
def transaction(
    grant: Grant, session: Session | scoped_session[Any], engine: Engine | None = None
) -> Iterator[None]:
    """See `flask_distlock.transaction`."""
    refuse_unfit("transaction(grant, session)", grant)
    names = ", ".join(map(repr, grant.names))
    found = session() if isinstance(session, scoped_session) else session
    if not isinstance(found, Session):
        raise ConfigurationError(
            f"transaction() on {names} takes a Session of SQLAlchemy, or db.session, and not a "
            f"{type(found).__name__}."
        )
    if found.in_transaction():
        raise ConfigurationError(
            f"transaction() on {names}: the session has begun a transaction already, so that the fence "
            "would come too late. Write session.commit() or session.rollback() before the 'with', or open "
            "the session inside the lock."
        )
    grant.check()
    left = time_left(grant)
    fenced = engine or _engine_of(found, names)
    connection = FenceConnection(fenced, found)
    ended: list[BaseException] = []

    @contextmanager
    def begin() -> Iterator[None]:
        # begin_fenced() may try several times, and only the last attempt counts.
        ended.clear()
        with found.begin():
            try:
                connection.open = found.connection(bind_arguments={"bind": fenced})
                refuse_autocommit(connection.open)
                watch(connection.open, ended.append)
                yield
            finally:
                connection.open = None

    def check(_session: Session) -> None:
        # The last moment before COMMIT: nothing is written if the lock was lost.
        grant.check()
        if ended:
            raise RolledBack(grant.names) from ended[0]
        if connection.open is not None and is_failed(connection.open.connection.dbapi_connection):
            raise ConfigurationError(
                f"transaction() on {names}: the block has caught an error of the database, which rolls "
                "back all of the transaction then: nothing of it is written. Write 'with "
                "session.begin_nested():' inside the try, around what may fail, or let the error out."
            )

    with begin_fenced(begin, connection, grant, left, make_table(DEFAULT_BIND)):
        # The loaded objects may have been read before the lock.
        found.expire_all()
        event.listen(found, "before_commit", check)
        try:
            yield
            # Flush and check here, because the end of begin_fenced() commits what the block has left.
            found.flush()
            check(found)
        finally:
            event.remove(found, "before_commit", check)
    grant._vouch()


def _engine_of(session: Session, names: str) -> Engine:
    bind = session.get_bind()
    if isinstance(bind, Engine):
        return bind
    raise ConfigurationError(
        f"transaction() on {names}: the session is bound to a connection, whose transaction others "
        "have begun. Bind it to the engine, or write engine=."
    )
