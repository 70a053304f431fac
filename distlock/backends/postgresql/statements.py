"""The SQL: each name's row gives its advisory lock a key, and a sequence gives the numbers of fences."""

from __future__ import annotations

#: The first half of the keys of advisory locks: "dlk", and the number of the format. Those of the site's own
#: code have another one, or are of the other kind, with one long key.
CLASS = 0x646C6B31
#: Numbers for each step of the sequence: one hold reserves so many.
SPAN = 1024
#: The longest time-out that the server can count, milliseconds.
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

#: Whether both are there. A user without the right to make them is refused, also where they are.
IS_MADE = f"SELECT to_regclass('{TABLE}') IS NOT NULL AND to_regclass('{SEQUENCE}') IS NOT NULL"

PING = "SELECT 1"


def _milliseconds(seconds: float) -> int:
    return 0 if not seconds else max(1, min(_LONGEST, int(seconds * 1000)))


def _idle(seconds: float) -> str:
    """The session ends when it was idle for so long. 0: never."""
    return f"set_config('idle_session_timeout', '{_milliseconds(seconds)}', false)"


def _number(row: str, literal: str) -> str:
    # A statement of its own: it sees what the holder before has raised, also after a wait. By the name,
    # too: the table may have been made anew.
    return (
        f"SELECT above + nextval('{SEQUENCE}') * {SPAN} FROM {TABLE} "  # noqa: S608
        f"WHERE id = {row} AND name = {literal}"
    )


def literal(text: str) -> str:
    """*text* in SQL, whatever the server's standard_conforming_strings."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def find(literal: str) -> str:
    return f"SELECT id FROM {TABLE} WHERE name = {literal}"  # noqa: S608


def insert(literal: str) -> str:
    return f"INSERT INTO {TABLE} (name) VALUES ({literal}) ON CONFLICT DO NOTHING RETURNING id"  # noqa: S608


def begin(longest: float) -> str:
    """*longest*: seconds that a statement may take on the server; 0: as long as it likes.

    What the site may have set for the user or the database would end a wait, or read numbers from the past,
    or forget in a crash which it has given.
    """
    return (
        f"SELECT pg_backend_pid(), pg_is_in_recovery(); SET statement_timeout = {_milliseconds(longest)}; "
        "SET lock_timeout = 0; SET default_transaction_isolation = 'read committed'; "
        "SELECT set_config('synchronous_commit', 'local', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )


#: Where the server's system can tell: a session that waits ends within a second of its process. Elsewhere it
#: is refused, and such a session keeps a connection of the server until its lock comes.
NOTICE = "SET client_connection_check_interval = 1000"


def take(row: str, literal: str, ttl: float) -> str:
    """One row if the lock of *row* was free; then its number. It passes nobody who waits in the server."""
    return f"SELECT {_idle(ttl)} WHERE pg_try_advisory_lock({CLASS}, {row}); {_number(row, literal)}"


def wait(row: str, window: float) -> str:
    """Answered when the lock is ours. Nobody may have noticed: it is worth *window* seconds until then."""
    return f"SELECT {_idle(window)}; SELECT pg_advisory_lock({CLASS}, {row})"


def accept(row: str, literal: str, ttl: float) -> str:
    return f"SELECT {_idle(ttl)}; {_number(row, literal)}"


def give_back(row: str, last: bool) -> str:
    """*last*: the session holds nothing else, and may be idle for as long as it likes."""
    return f"SELECT pg_advisory_unlock({CLASS}, {row})" + (f"; SELECT {_idle(0)}" if last else "")


def lift(row: str, literal: str, by: int) -> str:
    return (
        f"UPDATE {TABLE} SET above = above + {by} WHERE id = {row} AND name = {literal}; "  # noqa: S608
        + _number(row, literal)
    )


def look(pid: int) -> str:
    """Whether the session *pid* has its lock, or waits for it; no row while it has not come to that."""
    return f"SELECT granted FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory'"  # noqa: S608


def call_off(pid: int) -> str:
    """End the wait of the session *pid*: ``granted`` if it does not wait any more, and is left alone."""
    return (
        f"SELECT CASE WHEN EXISTS ({look(pid)} AND granted) THEN 'granted' "
        f"WHEN pg_cancel_backend({pid}) THEN 'called off' ELSE 'gone' END"
    )


def held(row: str) -> str:
    return (
        "SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted "  # noqa: S608
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND classid = {CLASS} AND objid = {row} AND objsubid = 2"
    )
