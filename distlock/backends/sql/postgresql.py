"""Locks in a PostgreSQL server: its advisory locks, in sessions of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from psycopg import Error

from distlock.backends.inspectable import Finding
from distlock.backends.sql import postgresql_statements as statements
from distlock.backends.sql.backend import SQLBackend
from distlock.backends.sql.dialect import Execute, Rows, ServerError, ServerLock, SessionStatus, connections
from distlock.backends.sql.postgresql_connection import (
    PostgreSQLAddress,
    PostgreSQLConnection,
    error_for,
    pooled,
    row_missing,
    standby,
    too_old,
)
from distlock.errors import ConfigurationError, LockError

#: The first version with idle_session_timeout.
_OLDEST = 140000
#: Names whose rows are cached.
_CACHED = 10_000
_BEYOND_BIGINT = "22003"


class PostgreSQLDialect:
    """The server at *url*, spoken to in its SQL: see `distlock.backends.sql.dialect.Dialect`.

    *pools*: whether a proxy in between is known to pool whole sessions.
    """

    ping = "SELECT 1"

    def __init__(self, url: str, pools: bool) -> None:
        self._address = PostgreSQLAddress(url)
        self._pools = pools
        self.shown = self._address.shown
        #: By key.
        self._locks: dict[str, ServerLock] = {}

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[PostgreSQLConnection, int]:
        connection = PostgreSQLConnection(self._address.conninfo(), deadline)
        try:
            if connection.version < _OLDEST:
                raise too_old(self._address, connection.version)
            begin = statements.begin(0.0 if waits else patience)
            [[[pid, standing_by]], *_] = connection.call(begin, deadline)
            number = int(pid or 0)
            if number != connection.pid and not self._pools:
                raise pooled(self._address)
            if standing_by == "t":
                raise standby(self._address)
            if waits:
                with suppress(ServerError):
                    connection.call(statements.NOTICE, deadline)
        except BaseException:
            connection.close()
            raise
        return connection, number

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        if (known := self._locks.get(key)) is not None:
            return known
        name = statements.literal(key)
        [rows] = execute(statements.find(name))
        if not rows and make:
            [rows] = execute(statements.insert(name))
            if not rows:
                # Another process has just made it.
                [rows] = execute(statements.find(name))
        if not rows:
            return None
        if len(self._locks) >= _CACHED:
            self._locks.clear()
        [[row]] = rows
        lock = self._locks[key] = ServerLock(row or "", name)
        return lock

    def forget(self) -> None:
        self._locks.clear()

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        taken, numbers = execute(statements.take(lock.id, lock.name, ttl))
        return _number(numbers) if taken else None

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        [_, numbers] = execute(statements.accept(lock.id, lock.name, ttl))
        return _number(numbers)

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        try:
            [*_, numbers] = execute(statements.raise_fence(lock.id, lock.name, number - have))
        except ServerError as error:
            if error.code != _BEYOND_BIGINT:
                raise
            raise ConfigurationError(
                f"A database has seen the fence {number}, and PostgreSQL can't count beyond it: "
                "raise FENCE_EPOCH (epoch= of connect), on all servers."
            ) from error
        return _number(numbers)

    def wait(self, lock: ServerLock, window: float) -> str:
        return statements.wait(lock.id, window)

    def check_granted(self, answer: list[Rows]) -> None:
        """Do nothing: a wait that somebody ends is answered with an error."""

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        [[[answer]], *_] = execute(statements.release(lock.id, last))
        return answer == "t"

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        [rows] = execute(statements.state_of(session))
        return rows == [["t"]] if rows else None

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        [[[outcome]]] = execute(statements.cancel_wait(session))
        return outcome != "granted"

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        return bool(execute(statements.is_locked(lock.id))[0])

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        return statements.read_sessions(execute, f"n.name = {statements.literal(key)}")

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        return statements.read_sessions(execute, f"starts_with(n.name, {statements.literal(prefix)})")

    def ending(self, session: int) -> str:
        return f"SELECT pg_terminate_backend({session});"

    def prepare(self, execute: Execute) -> str:
        if execute(statements.IS_MADE) != [[["t"]]]:
            execute(statements.MAKE)
        return (
            f"The table {statements.TABLE} and the sequence {statements.SEQUENCE} are there, in {self.shown}."
        )

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        [[[version, fsync, synchronous, standbys, here, most]]] = execute(statements.SETTINGS)
        yield Finding("ok", "server", f"PostgreSQL {version}.")
        if fsync == "on":
            yield Finding("ok", "persistence", "fsync is on: a crash gives no fence's number out again.")
        else:
            yield Finding(
                "warning",
                "persistence",
                "fsync is off: a crash of its host may lose the numbers of fences, and give them out again.",
                "Set fsync on, or give the locks a server of their own.",
            )
        if standbys != "0" and not synchronous:
            yield Finding(
                "warning",
                "replication",
                f"Its standbys: {standbys}. "
                "One that takes over knows no locks, and may lack the last fences.",
                "Fence what must not be done twice (fence=True), and set synchronous_standby_names.",
            )
        yield connections(int(here or 0), int(most or 0), sessions)

    def error_for(self, error: BaseException) -> LockError:
        return error_for(self._address, error)


class PostgreSQLBackend(SQLBackend):
    """The server at ``postgresql://user:password@host:5432/database``: see `SQLBackend`."""

    library_errors = Error

    @staticmethod
    def make_dialect(url: str, pools_sessions: bool) -> PostgreSQLDialect:
        return PostgreSQLDialect(url, pools_sessions)


def _number(rows: Rows) -> int:
    if not rows:
        raise row_missing()
    return int(rows[0][0] or 0)
