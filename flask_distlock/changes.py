"""Whether a session has changed something: SQLAlchemy's word, and the database's own. No SQL is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from distlock.fence.row import TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

#: An execution option of what the guard itself sends.
FENCE = "distlock_fence"

# Who changes rows has a number for the transaction, and locks the table in a mode that readers don't take;
# SELECT … FOR UPDATE has the number only, as nextval(). Both stay until the transaction ends:
# https://www.postgresql.org/docs/current/explicit-locking.html
_POSTGRESQL = f"""
SELECT pg_current_xact_id_if_assigned() IS NOT NULL,
  CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN 0 ELSE (
    SELECT count(*) FROM pg_catalog.pg_locks AS held JOIN pg_catalog.pg_class AS it ON it.oid = held.relation
    WHERE held.pid = pg_backend_pid() AND held.locktype = 'relation' AND it.relkind NOT IN ('S', 'i', 'I')
      AND held.mode NOT IN ('AccessShareLock', 'RowShareLock') AND it.relname <> '{TABLE}'
  ) END
"""  # noqa: S608 - nothing but the name of the table is put in.


class Seen(NamedTuple):
    """How much one connection has changed, as its database counts."""

    #: None: it can't tell.
    changes: int | None
    #: Whether it may have changed something that is not counted.
    more: bool = False


class Changes:
    """What the sessions of one app have changed in the transactions that are open."""

    def __init__(self) -> None:
        #: The connections of the open transactions, with what was seen when they began.
        self._begun: WeakKeyDictionary[Session, dict[Connection, Seen]] = WeakKeyDictionary()
        #: Whose transactions connections are in.
        self._in: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()
        #: Sessions that have sent changes to the database, so that they look clean and are not.
        self._sent: WeakSet[Session] = WeakSet()

    def begin(self, session: Session, database: Connection) -> None:
        """*session* has begun a transaction on *database*."""
        from sqlalchemy import event

        if commits_by_itself(database):
            # What is sent is committed: there is nothing that somebody could forget.
            return
        self._in[database] = session
        event.listen(database, "after_cursor_execute", self._executed)
        self._begun.setdefault(session, {})[database] = _at_begin(database)

    def end(self, session: Session) -> None:
        """The transaction of *session* has ended."""
        self._sent.discard(session)
        self._begun.pop(session, None)

    def known(self, session: Session) -> bool:
        """Whether SQLAlchemy knows of changes that a COMMIT would write."""
        if session.new or session.deleted or any(map(session.is_modified, session.dirty)):
            return True
        return session in self._sent and session.in_transaction()

    def of(self, session: Session) -> bool | None:
        """Whether *session* has changes; None: its database can't tell, and SQLAlchemy knows of none."""
        if self.known(session):
            return True
        told = {_changed(database, before) for database, before in self._begun.get(session, {}).items()}
        return True if True in told else None if None in told else False

    def locking(self, session: Session) -> bool:
        """Whether *session*, which has no changes, has locked rows. Only PostgreSQL tells."""
        return any(
            not before.more and database.dialect.name == "postgresql" and _changed(database, before) is None
            for database, before in self._begun.get(session, {}).items()
        )

    def _executed(
        self, database: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        session = self._in.get(database)
        if session is None:
            return
        if FENCE in context.execution_options:
            # The fence's own row is no change of the site's.
            if (begun := self._begun.get(session)) is not None and database.dialect.name == "sqlite":
                begun[database] = _sqlite(database)
        elif _changes(database, cursor, context):
            self._sent.add(session)


def commits_by_itself(database: Connection) -> bool:
    """Whether *database* commits each statement by itself, as far as its driver tells."""
    driver: Any = database.connection.dbapi_connection
    try:
        if database.dialect.name == "sqlite":
            # Without an isolation level there is a transaction only where somebody has written BEGIN.
            off = driver.isolation_level is not None and getattr(driver, "autocommit", -1) is not True
            return not (off or driver.in_transaction)
        return bool(database.dialect.detect_autocommit_setting(driver))
    except (AttributeError, NotImplementedError):
        return False  # Older than SQLAlchemy 2.0.43, or a driver that can't tell.


def _changes(database: Connection, cursor: Any, context: Any) -> bool:
    """Whether the statement that *context* is about has changed rows, as far as it tells."""
    if context.isinsert and cursor.description is not None and database.dialect.name == "sqlite":
        # It counts them only when what they return has been fetched.
        return True
    if context.isinsert:
        return bool(cursor.rowcount)
    if context.isupdate or context.isdelete:
        return bool(cursor.rowcount)
    # What gives no rows was no reading, in whatever words; SET and SAVEPOINT count none.
    return cursor.description is None and cursor.rowcount > 0


def _at_begin(database: Connection) -> Seen:
    match database.dialect.name:
        case "sqlite":
            return _sqlite(database)
        case "postgresql" if _joined(database):
            return _postgresql(database)
    return Seen(0)


def _joined(database: Connection) -> bool:
    """Whether the session takes part in a transaction that somebody else has begun, as in tests."""
    info = getattr(database.connection.dbapi_connection, "info", None)
    # What another driver can't tell is asked for.
    return getattr(info, "transaction_status", 1) != 0


def _changed(database: Connection, before: Seen) -> bool | None:
    try:
        match database.dialect.name:
            case "sqlite":
                if not getattr(database.connection.dbapi_connection, "in_transaction", True):
                    return False
                now = _sqlite(database)
            case "postgresql":
                now = _postgresql(database)
            case _:
                return None
    except Exception:
        # PostgreSQL takes no more statements after one that has failed, and commits nothing.
        return False
    if now.changes is None or before.changes is None:
        return None
    return True if now.changes > before.changes else None if now.more else False


def _sqlite(database: Connection) -> Seen:
    # Other drivers than Python's own need not have it.
    return Seen(getattr(database.connection.dbapi_connection, "total_changes", None))


def _postgresql(database: Connection) -> Seen:
    options = {FENCE: True}
    assigned, locks = database.exec_driver_sql(_POSTGRESQL, execution_options=options).one()
    return Seen(locks, more=assigned)
