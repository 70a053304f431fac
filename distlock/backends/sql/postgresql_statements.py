"""The SQL of PostgreSQL: a name's row is the key of its advisory lock, and a sequence counts the fences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distlock.backends.sql.dialect import Execute, SessionStatus
from distlock.backends.sql.postgresql_connection import APPLICATION

#: The first half of the keys of our advisory locks: "dlk", and the number of the format. Advisory locks of
#: the site's own code have another first half, or one long key.
CLASS = 0x646C6B31
#: Fence numbers for each step of the sequence: how many one hold reserves.
SPAN = 1024
#: The longest timeout that the server accepts, milliseconds.
_LONGEST = 2**31 - 1

TABLE = "distlock_name"
SEQUENCE = "distlock_number"

MAKE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ("
    "id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "name text NOT NULL UNIQUE, "
    "above bigint NOT NULL DEFAULT 0); "
    f"CREATE SEQUENCE IF NOT EXISTS {SEQUENCE}"
)

#: Asks whether both exist. `MAKE` fails without the right to make tables, also if they exist.
IS_MADE = f"SELECT to_regclass('{TABLE}') IS NOT NULL AND to_regclass('{SEQUENCE}') IS NOT NULL"


def _milliseconds(seconds: float) -> int:
    return 0 if not seconds else max(1, min(_LONGEST, int(seconds * 1000)))


def _idle(seconds: float) -> str:
    """Return the SQL that ends the session after *seconds* without a statement; 0: never."""
    return f"set_config('idle_session_timeout', '{_milliseconds(seconds)}', false)"


def _number(row: str, literal: str) -> str:
    # This is a statement of its own, so that it sees what the previous holder has raised, also after a wait.
    # It compares the name, because the table may have been made anew.
    return (
        f"SELECT above + nextval('{SEQUENCE}') * {SPAN} FROM {TABLE} "  # noqa: S608
        f"WHERE id = {row} AND name = {literal}"
    )


def literal(text: str) -> str:
    """Return *text* as SQL that means the same for every standard_conforming_strings."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def find(literal: str) -> str:
    return f"SELECT id FROM {TABLE} WHERE name = {literal}"  # noqa: S608


def insert(literal: str) -> str:
    return f"INSERT INTO {TABLE} (name) VALUES ({literal}) ON CONFLICT DO NOTHING RETURNING id"  # noqa: S608


def begin(longest: float) -> str:
    """Return the statements that begin a session.

    *longest*: seconds that a statement may take on the server; 0: without a bound. The settings replace those
    that the site may have for the user or the database: they would end a wait, or read old fence numbers, or
    lose in a crash which numbers were given out.
    """
    return (
        f"SELECT pg_backend_pid(), pg_is_in_recovery(); SET statement_timeout = {_milliseconds(longest)}; "
        "SET lock_timeout = 0; SET default_transaction_isolation = 'read committed'; "
        "SELECT set_config('synchronous_commit', 'local', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )


#: Ends a session that waits within a second of the end of its process. A server whose operating system can't
#: tell refuses this, and such a session keeps its connection until its lock comes.
NOTICE = "SET client_connection_check_interval = 1000"


def take(row: str, literal: str, ttl: float) -> str:
    """Return one row if the lock of *row* was free, and its number.

    The server does not let this overtake a session that waits.
    """
    return f"SELECT {_idle(ttl)} WHERE pg_try_advisory_lock({CLASS}, {row}); {_number(row, literal)}"


def wait(row: str, window: float) -> str:
    """Answer when the lock is ours. Until this process accepts it, it lasts *window* seconds."""
    return f"SELECT {_idle(window)}; SELECT pg_advisory_lock({CLASS}, {row})"


def accept(row: str, literal: str, ttl: float) -> str:
    return f"SELECT {_idle(ttl)}; {_number(row, literal)}"


def release(row: str, last: bool) -> str:
    """Return whether the lock was ours. *last*: the session holds no other lock, and may stay idle."""
    return f"SELECT pg_advisory_unlock({CLASS}, {row})" + (f"; SELECT {_idle(0)}" if last else "")


def raise_fence(row: str, literal: str, by: int) -> str:
    return (
        f"UPDATE {TABLE} SET above = above + {by} WHERE id = {row} AND name = {literal}; "  # noqa: S608
        + _number(row, literal)
    )


def state_of(pid: int) -> str:
    """Return whether the session *pid* has its lock or waits for it; no row while it does neither."""
    return f"SELECT granted FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory'"  # noqa: S608


def cancel_wait(pid: int) -> str:
    """End the wait of the session *pid*. Return ``granted``, and change nothing, if it has the lock."""
    return (
        f"SELECT CASE WHEN EXISTS ({state_of(pid)} AND granted) THEN 'granted' "
        f"WHEN pg_cancel_backend({pid}) THEN 'called off' ELSE 'gone' END"
    )


def is_locked(row: str) -> str:
    return (
        "SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted "  # noqa: S608
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND classid = {CLASS} AND objid = {row} AND objsubid = 2"
    )


#: What the health check asks. Any user may.
SETTINGS = (
    "SELECT current_setting('server_version'), current_setting('fsync'), "
    "current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), "
    "(SELECT sum(numbackends) FROM pg_stat_database WHERE datname IS NOT NULL), "
    "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
)
_PROCESS = re.compile(rf"{APPLICATION}:(\d+)@(.+)")


def read_sessions(execute: Execute, which: str) -> Iterator[SessionStatus]:
    """Yield the sessions at the locks whose rows of the table, as n, meet the condition *which*."""
    [rows] = execute(
        "SELECT n.name, l.pid, l.granted, extract(epoch FROM clock_timestamp() - l.waitstart), "  # noqa: S608
        "coalesce(a.application_name, ''), coalesce(host(a.client_addr) || ':' || a.client_port, '') "
        f"FROM pg_locks l JOIN {TABLE} n ON n.id = l.objid::bigint JOIN pg_stat_activity a USING (pid) "
        "WHERE l.locktype = 'advisory' "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND l.classid = {CLASS} AND l.objsubid = 2 AND {which} "
        "ORDER BY n.name, l.granted DESC, l.waitstart, l.pid"
    )
    for name, pid, granted, waited, application, address in rows:
        process = _PROCESS.fullmatch(application or "")
        yield SessionStatus(
            name or "",
            int(pid or 0),
            None if granted == "t" else float(waited or 0),
            f"{pid} of PostgreSQL, for {application or 'a client'}" + (f" at {address}" if address else ""),
            process[2] if process else "",
            int(process[1]) if process else 0,
        )
