"""How each kind of database shares the fence's row among readers: nothing is written into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from distlock.errors import ConfigurationError
from distlock.fence.line import SHARE, SHARED, in_line, within
from distlock.fence.row import TABLE
from distlock.fence.statements import (
    SELECT,
    SELECT_MARKED,
    VALUES,
    Connection,
    Rows,
    patiently,
    waiting,
    whole,
)


class Sharing(Protocol):
    """One kind of database. A wait that is too long raises what `trouble` calls busy."""

    #: Whether `share` of a row that is not there stands in the way of others: it locks the gap in which they
    #: insert, or is a read of what they write. What has found none is rolled back, and asks no more.
    locks_gaps: bool

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Keep writers from *row* until the transaction ends, waiting *seconds* at most for one that has it.

        Gives its `COLUMNS`. Empty: there is no such row. Raises what `trouble` calls a replica, where a
        shared row keeps nobody out.
        """

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        """Whether there is the row of *values* by now, also if it was made after this transaction began.

        After *seconds* at most nobody else is making it.
        """


class _PostgreSQLSharing:
    locks_gaps = True

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := connection.execute(f"{SELECT_MARKED} AND {SHARED} FOR SHARE SKIP LOCKED", [row, row]):
            return rows
        return in_line(connection, SHARE, f"{SELECT_MARKED} FOR SHARE", row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # A snapshot does not show what was made after it. To make it again is refused then; and nobody is to
        # wait for what is only tried.
        with within(connection, seconds):
            connection.execute("SAVEPOINT distlock_absent")
            insert = f"INSERT INTO {TABLE} {VALUES} ON CONFLICT DO NOTHING RETURNING 1"
            absent = connection.execute(insert, values)
            connection.execute("ROLLBACK TO SAVEPOINT distlock_absent")
            connection.execute("RELEASE SAVEPOINT distlock_absent")
        return not absent


class _MariaDBSharing:
    locks_gaps = True

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        _refuse_replica(connection)
        return self._locking(connection, row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # A locking read sees what was committed after the snapshot. Where there is no row it locks the gap in
        # which others insert, for the moment until COMMIT.
        return bool(self._locking(connection, str(values[0]), seconds))

    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        # It counts whole seconds.
        return connection.execute(f"{SELECT} LOCK IN SHARE MODE WAIT {whole(seconds)}", [row])


class _MySQLSharing(_MariaDBSharing):
    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        with waiting(connection, seconds):
            return connection.execute(f"{SELECT} FOR SHARE", [row])


class _SQLiteSharing:
    """SQLite, where a transaction reads one moment, and nobody has to be kept out."""

    locks_gaps = False

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        # Python's driver begins a transaction only for a write: this begins one where there is none.
        connection.execute("SAVEPOINT distlock_read")
        return patiently(connection, SELECT, [row], seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        return False


class ReplicaRefused(Exception):
    """The database is a replica: a row that is locked there keeps no writer of the primary out."""

    #: PostgreSQL's own error where nothing may be written.
    sqlstate = "25006"


def _refuse_replica(connection: Connection) -> None:
    [(read_only,)] = connection.execute("SELECT @@global.read_only")
    if str(read_only) not in {"0", "OFF"}:
        raise ReplicaRefused


_KINDS: dict[str, Sharing] = {
    "postgresql": _PostgreSQLSharing(),
    "mariadb": _MariaDBSharing(),
    "mysql": _MySQLSharing(),
    "sqlite": _SQLiteSharing(),
}


def refuse_lines(kind: str) -> None:
    """Raise `ConfigurationError` where no row of *kind* can be a lock that readers share."""
    if kind == "sqlite":
        raise ConfigurationError(
            "Rows of SQLite can't be locks that readers share: it locks its whole database, and for one "
            "writer. What a transaction reads there is of one moment, and keeps no writer out. Leave the "
            "lock out for what only reads, take it as a whole, or name a lock service, such as file://."
        )


def sharing_for(kind: str) -> Sharing:
    """The statements of *kind*. Raises `ConfigurationError` for a database that has no fence."""
    try:
        return _KINDS[kind]
    except KeyError:
        known = ", ".join(_KINDS)
        raise ConfigurationError(f"A fence needs one of {known}; the database is {kind!r}.") from None
