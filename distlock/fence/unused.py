"""A transaction that has written nothing leaves no new row: made-up names in requests fill no table.

The row would protect nothing. Whether something was written is asked of the database, and not read from the
statements, because triggers and functions write, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distlock.fence.passing import made_by
from distlock.fence.statements import DELETE, Connection, Rows
from distlock.fence.trouble import has_failed
from distlock.grants.current import was_asked_for
from distlock.grants.grant import Grant

#: A statement whose answer changes once the transaction has written something.
_WRITTEN = {
    # The tables that it has locked as a writer does: those locks last until it ends.
    "postgresql": "SELECT DISTINCT relation FROM pg_locks WHERE pid = pg_backend_pid() "
    "AND locktype = 'relation' AND mode NOT IN ('AccessShareLock', 'RowShareLock') ORDER BY 1",
    # How often this connection has asked its tables to write.
    "mariadb": "SHOW SESSION STATUS WHERE Variable_name "
    "IN ('Handler_write', 'Handler_update', 'Handler_delete')",
    # How many rows this connection has changed.
    "sqlite": "SELECT total_changes()",
}
_WRITTEN["mysql"] = _WRITTEN["mariadb"]


@contextmanager
def unless_unused(connection: Connection, grant: Grant, goes_on: Callable[[], bool]) -> Iterator[None]:
    """Take away the rows that *grant* has made in this transaction, if the block writes nothing.

    *goes_on*: whether a later transaction of the grant may rely on what this one has read.
    """
    rows = made_by(grant, connection.database)
    before = _written(connection) if rows else ()
    yield
    # A number that somebody was told is remembered: later ones have to be larger.
    if not rows or was_asked_for(grant) or goes_on():
        return
    try:
        if _written(connection) == before:
            for row in rows:
                connection.execute(DELETE, [row])
    except Exception as error:
        # It will be rolled back, even where the view has caught the error that ended it.
        if not has_failed(error):
            raise


def _written(connection: Connection) -> Rows:
    return [tuple(row) for row in connection.execute(_WRITTEN[connection.kind])]
