"""Finds out, from SQLAlchemy and from the database, whether a session has changes. It parses no SQL."""

from __future__ import annotations

from collections.abc import Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction

from distlock.fence.stamps import TABLE
from flask_distlock.private import has_begun, is_savepoint

#: An execution option of statements that the guard itself sends: whether they may change rows.
FENCE = "distlock_fence"

# The modes of locks that readers take, the last one under SERIALIZABLE. They last until the transaction ends:
# https://www.postgresql.org/docs/current/explicit-locking.html
_READING = "('AccessShareLock', 'RowShareLock', 'SIReadLock')"

# A transaction that changes rows has an xact id, and locks the table in a mode that readers don't take.
# SELECT … FOR UPDATE and nextval() assign only the id; an UPDATE that matches no row takes only the lock.
# The row counts include earlier transactions that the server has not added to its statistics yet: 0 rows is
# certain, more are not. The sum is NULL if the server counts no rows, if a table is foreign, or if a lock is
# stronger than the RowExclusiveLock of an ordinary write, as with TRUNCATE.
_CHANGED = f"""
SELECT pg_current_xact_id_if_assigned() IS NOT NULL, count(*),
  CASE WHEN current_setting('track_counts')::bool AND bool_and(counts) IS NOT FALSE
    THEN coalesce(sum(rows), 0)::bigint END
FROM (
  SELECT bool_and(held.mode = 'RowExclusiveLock') AND it.relkind IS DISTINCT FROM 'f' AS counts,
    pg_stat_get_xact_tuples_inserted(held.relation) + pg_stat_get_xact_tuples_updated(held.relation)
      + pg_stat_get_xact_tuples_deleted(held.relation) AS rows
  FROM pg_catalog.pg_locks AS held LEFT JOIN pg_catalog.pg_class AS it ON it.oid = held.relation
  WHERE pg_current_xact_id_if_assigned() IS NOT NULL
    AND held.pid = pg_backend_pid() AND held.locktype = 'relation' AND held.mode NOT IN {_READING}
    AND it.relname IS DISTINCT FROM '{TABLE}' AND coalesce(it.relkind NOT IN ('S', 'i', 'I'), true)
  GROUP BY held.relation, it.relkind
) AS written
"""  # noqa: S608 - nothing but our own names is put in.

#: The command tags of PostgreSQL for statements that change rows.
WRITING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
#: The command tag for a statement that locks a whole table.
LOCKING = frozenset({"LOCK TABLE"})

# All advisory locks count, because pg_locks does not show whether one belongs to the transaction or to the
# connection.
_LOCKS = f"""
SELECT pg_current_xact_id_if_assigned() IS NOT NULL OR EXISTS (
  SELECT FROM pg_catalog.pg_locks
  WHERE pid = pg_backend_pid()
    AND (locktype = 'advisory' OR (locktype = 'relation' AND mode NOT IN {_READING}))
)
"""  # noqa: S608


class Seen(NamedTuple):
    """How much one connection has changed, as its database counts."""

    #: SQLite: the number of changed rows. PostgreSQL: the number of tables locked for writing. None: unknown.
    changes: int | None
    #: PostgreSQL: whether the transaction has an xact id, and so may have changes.
    more: bool = False
    #: PostgreSQL: the number of changed rows in these tables; None: unknown.
    rows: int | None = 0


def seen_at_begin(connection: Connection) -> Seen | None:
    """Return the state of *connection* at the beginning of its transaction, for `changed` to compare.

    None: *connection* is in autocommit mode, or a batch shares it, so that the database also counts the
    changes of other requests.
    """
    # On a shared connection, `Changes` counts the statements of each request instead.
    if commits_by_itself(connection) or shared_connection.get() is connection:
        return None
    match connection.dialect.name:
        case "sqlite":
            # Only Python's own driver surely has this attribute.
            return Seen(getattr(connection.connection.dbapi_connection, "total_changes", None))
        case "postgresql" if _joined(connection):
            return _postgresql(connection)
    return Seen(0)


def changed(connection: Connection, before: Seen, explained: Set[str]) -> bool | None:
    """Return whether *connection* has changes since *before*; None: unknown.

    *explained*: PostgreSQL's command tags of statements that have locked tables without changes.
    """
    try:
        match connection.dialect.name:
            case "sqlite":
                driver = connection.connection.dbapi_connection
                if not getattr(driver, "in_transaction", True):
                    return False
                now = getattr(driver, "total_changes", None)
            case "postgresql":
                return _more(before, _postgresql(connection), explained)
            case _:
                return None
    except Exception:
        # After a failed statement PostgreSQL refuses all others, and commits nothing.
        return False
    return None if now is None or before.changes is None else now > before.changes


def holds_locks(connection: Connection) -> bool | None:
    """Return whether the transaction on *connection*, which has no changes, holds locks; None: unknown."""
    try:
        match connection.dialect.name:
            case "sqlite":
                # Python's driver begins no transaction for reads, but the site may have sent BEGIN IMMEDIATE.
                begun = getattr(connection.connection.dbapi_connection, "in_transaction", True)
                return None if begun else False
            case "postgresql":
                return bool(connection.exec_driver_sql(_LOCKS, execution_options={FENCE: True}).scalar_one())
    except Exception:
        # A failed transaction keeps its locks until ROLLBACK, and refuses queries about them.
        return None
    return None


def commits_by_itself(connection: Connection) -> bool:
    """Return whether the next statement of *connection* commits by itself, as far as its driver tells."""
    driver: Any = connection.connection.dbapi_connection
    try:
        if connection.dialect.name == "sqlite":
            # Without an isolation level, only a BEGIN of the site opens a transaction.
            autocommit_off = (
                driver.isolation_level is not None and getattr(driver, "autocommit", -1) is not True
            )
            return not (autocommit_off or driver.in_transaction)
        return bool(connection.dialect.detect_autocommit_setting(driver))
    except (AttributeError, NotImplementedError):
        return False  # SQLAlchemy is older than 2.0.43, or the driver can't tell.


def _joined(connection: Connection) -> bool:
    """Return whether other code, such as a test, has begun the transaction of *connection* already."""
    info = getattr(connection.connection.dbapi_connection, "info", None)
    # If the driver can't tell, assume so: the caller then asks the database.
    return getattr(info, "transaction_status", 1) != 0


def _more(before: Seen, now: Seen, explained: Set[str]) -> bool | None:
    """Return whether PostgreSQL's *now* has changes that *before* has not; None: unknown."""
    if not now.more:
        return False
    assert now.changes is not None
    assert before.changes is not None
    if now.rows is not None and now.rows == before.rows:
        return None
    if now.changes == before.changes:
        return True if now.rows is not None and before.rows is not None else None
    # Statements in *explained* may have left the table locks. Without a row count, one of the locks may be
    # stronger than RowExclusiveLock, which only LOCK TABLE explains.
    return None if explained & (LOCKING if now.rows is None else WRITING) else True


def _postgresql(connection: Connection) -> Seen:
    options = {FENCE: True}
    assigned, tables, rows = connection.exec_driver_sql(_CHANGED, execution_options=options).one()
    return Seen(tables, more=assigned, rows=rows)


#: The connection of the batch in which the running code's sessions take part, or None.
shared_connection: ContextVar[Connection | None] = ContextVar("distlock_shared_connection", default=None)


class Work(NamedTuple):
    """The number of statements that were sent in a transaction."""

    all: int
    #: The number of statements that returned no rows, such as SET LOCAL. Savepoints are not counted.
    acts: int


NOTHING = Work(0, 0)


@dataclass(slots=True, weakref_slot=True)
class _OpenTransaction:
    """The open transaction of one session, as far as its events and statements tell."""

    #: Its connections, each with the result of `seen_at_begin`.
    connections: dict[Connection, Seen | None] = field(default_factory=dict)
    #: Whether a statement has changed rows. After a flush the session itself looks clean.
    sent: bool = False
    #: The command tags of statements without changes whose table locks look like changes.
    quiet: set[str] = field(default_factory=set)
    work: Work = NOTHING


class Changes:
    """The changes of sessions in their open transactions."""

    def __init__(self) -> None:
        self._opened: WeakKeyDictionary[SessionTransaction, _OpenTransaction] = WeakKeyDictionary()
        #: The open transaction of each connection.
        self._in: WeakKeyDictionary[Connection, ref[_OpenTransaction]] = WeakKeyDictionary()

    def begin(self, transaction: SessionTransaction, connection: Connection) -> None:
        """Note that *transaction*, the outermost of a session, has begun on *connection*."""
        opened = self._opened.setdefault(transaction, _OpenTransaction())
        seen = opened.connections[connection] = seen_at_begin(connection)
        # In autocommit mode no COMMIT can be missing, so there is nothing to follow.
        if seen is not None or shared_connection.get() is connection:
            self._in[connection] = ref(opened)
            event.listen(connection, "after_cursor_execute", self._executed)

    def _of(self, session: Session) -> _OpenTransaction | None:
        transaction = session.get_transaction()
        return None if transaction is None else self._opened.get(transaction)

    def known(self, session: Session) -> bool:
        """Return whether SQLAlchemy knows of changes that a COMMIT would write."""
        if session.new or session.deleted or any(map(session.is_modified, session.dirty)):
            return True
        opened = self._of(session)
        return opened is not None and opened.sent

    def of(self, session: Session) -> bool | None:
        """Return whether *session* has changes; None: SQLAlchemy knows none, and the database can't tell."""
        if self.known(session):
            return True
        opened = self._of(session) or _OpenTransaction()
        begun = opened.connections.items()
        answers = {changed(one, before, opened.quiet) for one, before in begun if before is not None}
        return True if True in answers else None if None in answers else False

    def holds_locks(self, session: Session) -> bool | None:
        """Return whether the transaction of *session*, which has no changes, holds locks.

        None: the database can't tell, or the beginning of the transaction was not seen.
        """
        if (opened := self._of(session)) is None:
            return None
        answers = set(map(holds_locks, opened.connections))
        return True if True in answers else None if None in answers else False

    def work(self, session: Session) -> Work:
        """Return the number of statements that *session* has sent in its transaction."""
        opened = self._of(session)
        return NOTHING if opened is None else opened.work

    def _executed(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        found = self._in.get(connection)
        opened = None if found is None else found()
        if opened is None:
            return
        if FENCE in context.execution_options:
            # The fence row is no change of the site, so SQLite's count starts anew after it.
            if context.execution_options[FENCE] and connection.dialect.name == "sqlite":
                opened.connections[connection] = seen_at_begin(connection)
            return
        writes = context.isinsert or context.isupdate or context.isdelete
        acts = cursor.description is None and (writes or not is_savepoint(context))
        opened.work = Work(opened.work.all + 1, opened.work.acts + acts)
        # A statement that returns no rows and has a row count is a write. SET and SAVEPOINT have no count.
        counted = bool(cursor.rowcount) if writes else cursor.description is None and cursor.rowcount > 0
        # SQLite counts the rows of INSERT … RETURNING only after they are fetched.
        uncounted = context.isinsert and cursor.description is not None
        if counted or (uncounted and connection.dialect.name == "sqlite"):
            opened.sent = True
            return
        # psycopg has PostgreSQL's command tag: the kind of statement, and the number of rows.
        *words, last = str(getattr(cursor, "statusmessage", None) or "").split() or [""]
        word, rows = (words[0], int(last)) if last.isdigit() else (" ".join([*words, last]), 0)
        if word in WRITING and rows > 0 and not writes:
            opened.sent = True
        elif word in WRITING | LOCKING:
            opened.quiet.add(word)
        elif not word and (writes or cursor.description is None) and cursor.rowcount == 0:
            # Drivers other than psycopg have no command tag.
            opened.quiet.add("UPDATE")


def joins(session: Session) -> bool:
    """Return whether *session* joins a connection whose transaction other code, such as a test, has begun."""
    try:
        bind = session.get_bind()
    except UnboundExecutionError:
        return False
    # A site may bind each request's session to a connection, whose transactions the session itself begins.
    return isinstance(bind, Connection) and bind.in_transaction() and not has_begun(session, bind)
