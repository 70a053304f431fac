"""Locks in a PostgreSQL server: its advisory locks, in sessions that are opened for locks only.

A table has a row for each name, whose id is the key of the advisory lock. A sequence counts the fences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from psycopg import Error

from distlock.backends.inspectable import Finding, connections
from distlock.backends.sql.backend import SQLBackend
from distlock.backends.sql.connection import Rows, ServerError, reading
from distlock.backends.sql.dialect import Dialect, Execute, RowMissing, ServerLock, SessionStatus
from distlock.backends.sql.postgresql_connection import APPLICATION, PostgreSQLAddress, PostgreSQLConnection
from distlock.errors import ConfigurationError

#: The first version with idle_session_timeout.
_OLDEST = 140000
#: The most names whose rows are cached.
_CACHED = 10_000
#: How often a missing row is inserted before the caller gets an error.
_INSERTIONS = 3
_BEYOND_BIGINT = "22003"

#: The first half of the keys of our advisory locks: "dlk", and the number of the format. The advisory locks
#: of a site's own code have another first half, or one long key.
_CLASS = 0x646C6B31
#: The fence numbers of one step of the sequence, which one hold reserves.
_SPAN = 1024
#: The longest timeout that the server accepts, milliseconds.
_LONGEST = 2**31 - 1

_TABLE = "distlock_name"
_SEQUENCE = "distlock_number"
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} ("
    "id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "name text NOT NULL UNIQUE, "
    "above bigint NOT NULL DEFAULT 0); "
    f"CREATE SEQUENCE IF NOT EXISTS {_SEQUENCE}"
)

#: Returns what the health check needs. Any user may send it.
_SETTINGS = (
    "SELECT current_setting('server_version'), current_setting('fsync'), "
    "current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), "
    "(SELECT sum(numbackends) FROM pg_stat_database WHERE datname IS NOT NULL), "
    "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
)
#: A condition for pg_locks AS l: the row is one of our locks in this database.
_OURS = (
    "l.locktype = 'advisory' "  # noqa: S608
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    f"AND l.classid = {_CLASS} AND l.objsubid = 2"
)
_PROCESS = re.compile(rf"{APPLICATION}:(\d+)@(.+)")


class PostgreSQLDialect(Dialect):
    """The SQL of PostgreSQL: see `Dialect`."""

    database = "PostgreSQL"
    library_errors = Error
    lacking = dict.fromkeys(("42P01", "3F000"), Dialect.TABLES)
    remedies = (
        ("Check the user and the password.", "28P01", "password authentication failed"),
        ("Put the password in the URL: postgresql://user:password@host/database.", "no password supplied"),
        ("Let this user in: see pg_hba.conf on the server.", "28000", "no pg_hba.conf entry"),
        (
            "Raise max_connections on the server, or let fewer processes lock.",
            *("53300", "too many connections", "remaining connection slots", "sorry, too many clients"),
        ),
        ("Raise max_locks_per_transaction on the server: it has no room for more locks.", "53200"),
        (
            "To prepare it, be a user that may make tables. To lock, this user needs USAGE on the schema.",
            "permission denied for schema",
        ),
        (
            "Grant this user SELECT, INSERT and UPDATE on distlock_name, and USAGE on distlock_number.",
            "42501",
        ),
        ("It is a standby, or read only: put the primary in the URL.", "25006"),
        ("Somebody has ended the statement on the server: try again.", "due to user request"),
        ("Somebody has ended the session, or stopped the server: try again.", "to administrator command"),
        (
            "This process stood still: try again. If it did not, raise idle_session_timeout there.",
            "to idle-session timeout",
        ),
        ("It is starting or stopping: try again.", "57P03"),
        ("It is starting: try again.", "starting up"),
        (
            "It does not speak as PostgreSQL does: check host and port in the URL.",
            "response to SSL negotiation",
        ),
        ("Switch TLS on there (ssl = on), or write another sslmode in the URL.", "does not support SSL"),
        ("Correct it in the URL.", ' value: "'),
        ("Correct sslrootcert in the URL, or the file.", "root certificate file"),
        ("Write a host that the certificate names in the URL.", "does not match host name"),
        (
            "Name who signed its certificate in the URL: ?sslrootcert=/path/ca.pem.",
            "certificate verify failed",
        ),
        ("Check user and database in the URL.", "does not exist"),
        ("Check the name of the host in the URL, and the resolver.", "could not translate"),
    )

    def __init__(self, url: str, pools_sessions: bool) -> None:
        super().__init__(url, pools_sessions)
        self._address = PostgreSQLAddress(url)
        self.shown = self._address.shown
        #: Known locks, by key.
        self._locks: dict[str, ServerLock] = {}

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[PostgreSQLConnection, int]:
        connection = PostgreSQLConnection(self._address.conninfo(), deadline)
        try:
            if connection.version < _OLDEST:
                raise self.unfit(
                    f"is version {connection.version // 10000}, which can't end the session of a process "
                    "that hangs (idle_session_timeout). Use version 14 or newer, or name another lock "
                    "service, such as redis://."
                )
            # The site may have other settings for the user or the database. They could end a wait, read old
            # fence numbers, or lose in a crash which numbers were given out.
            answer = connection.call(
                "SELECT pg_backend_pid(), pg_is_in_recovery(); "
                f"SET statement_timeout = {0 if waits else _milliseconds(patience)}; "
                "SET lock_timeout = 0; SET default_transaction_isolation = 'read committed'; "
                "SELECT set_config('synchronous_commit', 'local', false) "
                "WHERE current_setting('synchronous_commit') = 'off'",
                deadline,
            )
            with reading():
                [[[pid, standing_by]], *_] = answer
                number = int(pid or 0)
            if number != connection.pid and not self.pools_sessions:
                raise self.proxy_error()
            if standing_by == "t":
                raise self.unavailable(
                    "it is a standby, whose locks the others don't see",
                    "Put the primary in the URL; of several hosts, target_session_attrs=read-write finds it.",
                )
            if waits:
                # With this setting, a session that waits ends within a second after its process. A server
                # whose operating system does not support that refuses the setting. Then the session of a
                # process that has ended lasts until it gets the lock.
                with suppress(ServerError):
                    connection.call("SET client_connection_check_interval = 1000", deadline)
        except BaseException:
            connection.close()
            raise
        return connection, number

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        if (known := self._locks.get(key)) is not None:
            return known
        name = _literal(key)
        find = f"SELECT id FROM {_TABLE} WHERE name = {name}"  # noqa: S608
        insert = f"INSERT INTO {_TABLE} (name) VALUES ({name}) ON CONFLICT DO NOTHING RETURNING id"  # noqa: S608
        rows = _only_rows(execute(find))
        for _ in range(_INSERTIONS if make else 0):
            # If the insertion returns no row, another process has just made the row. Somebody may have
            # deleted it by the next query.
            rows = rows or _only_rows(execute(insert)) or _only_rows(execute(find))
        if not rows:
            if make:
                raise RowMissing
            return None
        if len(self._locks) >= _CACHED:
            self._locks.clear()
        with reading():
            [[row]] = rows
        lock = self._locks[key] = ServerLock(row or "", name)
        return lock

    def forget(self) -> None:
        self._locks.clear()

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        # Even without waiting, this does not overtake a session that waits.
        taking = f"SELECT {_idle(ttl)} WHERE pg_try_advisory_lock({_CLASS}, {lock.id})"
        answer = execute(f"{taking}; {_number(lock)}")
        with reading():
            taken, _ = answer
        return _number_in(answer) if taken else None

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        return _number_in(execute(f"SELECT {_idle(ttl)}; {_number(lock)}"))

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        update = f"UPDATE {_TABLE} SET above = above + {number - have} {_where(lock)}"  # noqa: S608
        try:
            answer = execute(f"{update}; {_number(lock)}")
        except ServerError as error:
            if error.code != _BEYOND_BIGINT:
                raise
            raise ConfigurationError(
                f"A database has seen the fence {number}, and PostgreSQL can't count beyond it: "
                "raise FENCE_EPOCH (epoch= of connect), on all servers."
            ) from error
        return _number_in(answer)

    def wait(self, lock: ServerLock, window: float) -> str:
        return f"SELECT {_idle(window)}; SELECT pg_advisory_lock({_CLASS}, {lock.id})"

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        stay = f"; SELECT {_idle(0)}" if last else ""
        answer = execute(f"SELECT pg_advisory_unlock({_CLASS}, {lock.id}){stay}")
        with reading():
            [[[was_ours]], *_] = answer
        return was_ours == "t"

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        rows = _only_rows(execute(_state_of(session)))
        return rows == [["t"]] if rows else None

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        answer = execute(
            f"SELECT CASE WHEN EXISTS ({_state_of(session)} AND granted) THEN 'granted' "
            f"WHEN pg_cancel_backend({session}) THEN 'called off' ELSE 'gone' END"
        )
        with reading():
            [[[outcome]]] = answer
        return outcome != "granted"

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        asked = f"SELECT FROM pg_locks l WHERE {_OURS} AND granted AND objid = {lock.id}"
        return bool(_only_rows(execute(asked)))

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        return _read_sessions(execute, f"n.name = {_literal(key)}")

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        return _read_sessions(execute, f"starts_with(n.name, {_literal(prefix)})")

    def ending(self, session: int) -> str:
        return f"SELECT pg_terminate_backend({session});"

    def prepare(self, execute: Execute) -> str:
        # Without the right to make tables, CREATE ... IF NOT EXISTS fails even if they exist.
        asked = f"SELECT to_regclass('{_TABLE}') IS NOT NULL AND to_regclass('{_SEQUENCE}') IS NOT NULL"
        if execute(asked) != [[["t"]]]:
            execute(_MAKE)
        return f"The table {_TABLE} and the sequence {_SEQUENCE} are there, in {self.shown}."

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        answer = execute(_SETTINGS)
        with reading():
            [[[version, fsync, synchronous, standbys, *counts]]] = answer
            here, most = (int(count or 0) for count in counts)
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
        yield connections(here, most, sessions, "max_connections")


class PostgreSQLBackend(SQLBackend):
    """The backend for the server at ``postgresql://user:password@host:5432/database``: see `SQLBackend`."""

    dialect = PostgreSQLDialect


def _milliseconds(seconds: float) -> int:
    return 0 if not seconds else max(1, min(_LONGEST, int(seconds * 1000)))


def _idle(seconds: float) -> str:
    """Return SQL that makes the server end the session when it has been idle for *seconds*; 0: never."""
    return f"set_config('idle_session_timeout', '{_milliseconds(seconds)}', false)"


def _literal(text: str) -> str:
    """Return *text* as an SQL literal that means the same for every standard_conforming_strings."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _where(lock: ServerLock) -> str:
    # Compare the name, too: if the table was made anew, the id may be that of another name.
    return f"WHERE id = {lock.id} AND name = {lock.name}"


def _number(lock: ServerLock) -> str:
    # This is a statement of its own, after the lock's. So it sees how far the previous holder raised *above*.
    return f"SELECT above + nextval('{_SEQUENCE}') * {_SPAN} FROM {_TABLE} {_where(lock)}"  # noqa: S608


def _only_rows(answer: list[Rows]) -> Rows:
    """Return the rows of the only statement that *answer* answers."""
    with reading():
        [rows] = answer
    return rows


def _number_in(answer: list[Rows]) -> int:
    with reading():
        [_, rows] = answer
        if not rows:
            raise RowMissing
        return int(rows[0][0] or 0)


def _state_of(pid: int) -> str:
    """Return SQL that tells whether the session *pid* has its lock or waits; no row: it does neither."""
    return f"SELECT granted FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory'"  # noqa: S608


def _read_sessions(execute: Execute, which: str) -> Iterator[SessionStatus]:
    """Yield the holder, then the waiters, of each lock whose row, as n, meets the condition *which*."""
    answer = execute(
        "SELECT n.name, l.pid, l.granted, extract(epoch FROM clock_timestamp() - l.waitstart), "  # noqa: S608
        "coalesce(a.application_name, ''), coalesce(host(a.client_addr) || ':' || a.client_port, '') "
        f"FROM pg_locks l JOIN {_TABLE} n ON n.id = l.objid::bigint JOIN pg_stat_activity a USING (pid) "
        f"WHERE {_OURS} AND {which} ORDER BY n.name, l.granted DESC, l.waitstart, l.pid"
    )
    with reading():
        found = [_status(*row) for row in _only_rows(answer)]
    yield from found


def _status(
    name: str | None,
    pid: str | None,
    granted: str | None,
    waited: str | None,
    application: str | None,
    address: str | None,
) -> SessionStatus:
    process = _PROCESS.fullmatch(application or "")
    return SessionStatus(
        name or "",
        int(pid or 0),
        None if granted == "t" else float(waited or 0),
        f"{pid} of PostgreSQL, for {application or 'a client'}" + (f" at {address}" if address else ""),
        process[2] if process else "",
        int(process[1]) if process else 0,
    )
