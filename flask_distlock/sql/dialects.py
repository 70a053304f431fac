"""What a database tells of the transaction that is open on a connection: its changes, and its locks."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

from sqlalchemy import Connection

from distlock.fence.row import TABLE

#: An execution option of what the guard itself sends: whether that may change rows.
FENCE = "distlock_fence"

# Readers take the first two, SERIALIZABLE ones the third. All stay until the transaction ends:
# https://www.postgresql.org/docs/current/explicit-locking.html
_READING = "('AccessShareLock', 'RowShareLock', 'SIReadLock')"

# A transaction that changes rows has a number, and locks the table in a mode that readers don't take.
# SELECT … FOR UPDATE has the number only, as nextval(); an UPDATE that meets no row locks the table only.
# Rows are counted where they are written, and together with those of earlier transactions that the server has
# not put into its statistics yet: none is certain, some are not. An ordinary write takes RowExclusiveLock.
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

#: The dialect's words for statements that change rows.
WRITING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
#: And one that locks a whole table.
LOCKING = frozenset({"LOCK TABLE"})

# The server does not tell advisory locks of the transaction from those of the connection.
_LOCKS = f"""
SELECT pg_current_xact_id_if_assigned() IS NOT NULL OR EXISTS (
  SELECT FROM pg_catalog.pg_locks
  WHERE pid = pg_backend_pid()
    AND (locktype = 'advisory' OR (locktype = 'relation' AND mode NOT IN {_READING}))
)
"""  # noqa: S608


class Seen(NamedTuple):
    """How much one connection has changed, as its database counts."""

    #: None: it can't tell.
    changes: int | None
    #: Whether it may have changed something that is not counted.
    more: bool = False
    #: PostgreSQL: in how many rows of the tables that are locked for writing; None: it can't tell.
    rows: int | None = 0


def seen_at_begin(connection: Connection) -> Seen:
    """To be compared with, in the transaction that has begun on *connection* just now."""
    match connection.dialect.name:
        case "sqlite":
            return _sqlite(connection)
        case "postgresql" if _joined(connection):
            return _postgresql(connection)
    return Seen(0)


def changed(connection: Connection, before: Seen, explained: Set[str]) -> bool | None:
    """Whether something was changed on *connection* since *before*; None: nobody can tell.

    *explained*: what statements that have changed nothing were, as PostgreSQL calls them.
    """
    try:
        match connection.dialect.name:
            case "sqlite":
                if not getattr(connection.connection.dbapi_connection, "in_transaction", True):
                    return False
                now = _sqlite(connection)
            case "postgresql":
                return _more(before, _postgresql(connection), explained)
            case _:
                return None
    except Exception:
        # PostgreSQL takes no more statements after one that has failed, and commits nothing.
        return False
    if now.changes is None or before.changes is None:
        return None
    return now.changes > before.changes


def holds_locks(connection: Connection) -> bool | None:
    """Whether the end of the transaction on *connection*, which has no changes, would let a lock go.

    None: it can't tell.
    """
    try:
        match connection.dialect.name:
            case "sqlite":
                # Python's driver begins none for reading. What somebody has begun may be BEGIN IMMEDIATE.
                begun = getattr(connection.connection.dbapi_connection, "in_transaction", True)
                return None if begun else False
            case "postgresql":
                return bool(connection.exec_driver_sql(_LOCKS, execution_options={FENCE: True}).scalar_one())
    except Exception:
        # One that has failed keeps its locks until it is rolled back, and answers nothing.
        return None
    return None


def commits_by_itself(connection: Connection) -> bool:
    """Whether *connection* commits each statement by itself, as far as its driver tells."""
    driver: Any = connection.connection.dbapi_connection
    try:
        if connection.dialect.name == "sqlite":
            # Without an isolation level there is a transaction only where somebody has written BEGIN.
            off = driver.isolation_level is not None and getattr(driver, "autocommit", -1) is not True
            return not (off or driver.in_transaction)
        return bool(connection.dialect.detect_autocommit_setting(driver))
    except (AttributeError, NotImplementedError):
        return False  # Older than SQLAlchemy 2.0.43, or a driver that can't tell.


def _joined(connection: Connection) -> bool:
    """Whether the session takes part in a transaction that somebody else has begun, as in tests."""
    info = getattr(connection.connection.dbapi_connection, "info", None)
    # Where the driver can't tell, the database is asked.
    return getattr(info, "transaction_status", 1) != 0


def _more(before: Seen, now: Seen, explained: Set[str]) -> bool | None:
    """Whether PostgreSQL's *now* has changes that *before* has not."""
    if not now.more:
        return False
    assert now.changes is not None
    assert before.changes is not None
    if now.rows is not None and now.rows == before.rows:
        return None
    if now.changes == before.changes:
        return True if now.rows is not None and before.rows is not None else None
    # The locks are what is left of them. One for more than rows is explained by LOCK TABLE alone.
    return None if explained & (LOCKING if now.rows is None else WRITING) else True


def _sqlite(connection: Connection) -> Seen:
    # Other drivers than Python's own need not have it.
    return Seen(getattr(connection.connection.dbapi_connection, "total_changes", None))


def _postgresql(connection: Connection) -> Seen:
    options = {FENCE: True}
    assigned, tables, rows = connection.exec_driver_sql(_CHANGED, execution_options=options).one()
    return Seen(tables, more=assigned, rows=rows)
