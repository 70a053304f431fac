"""The SQL of MariaDB and MySQL: a lock's name is a digest, and a table counts its fences."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from distlock.backends.sql.dialect import Execute, SessionStatus

#: How long the server lets a session wait: a year, because this process ends waits itself.
_WAIT = 31_536_000
#: Seconds that a session without a hold may be idle. The pool closes it long before.
_IDLE = 3600

TABLE = "distlock_name"
#: The state of a session that waits for a lock of GET_LOCK, as the server calls it.
WAITS = "User lock"

MAKE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ("
    "lock_name char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "name text CHARACTER SET utf8mb4 NOT NULL, "
    "number bigint NOT NULL) ENGINE = InnoDB"
)
#: Returns a row if the table exists. `MAKE` fails without the right to make tables, also if it exists.
IS_MADE = (
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() "  # noqa: S608
    f"AND table_name = '{TABLE}'"
)


def lock_name(database: str, key: str) -> str:
    """Return the digest that names the lock: GET_LOCK takes 64 characters, and names are server-wide.

    Some servers take Shop and shop for one database. The number is the format's.
    """
    return hashlib.sha256(f"distlock-1:{database.lower()}:{key}".encode()).hexdigest()


def literal(text: str) -> str:
    """Return *text* as SQL that means the same in every sql_mode."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _idle(seconds: float) -> str:
    """Return the statement that ends the session after *seconds* without a statement, rounded up."""
    return f"SET SESSION wait_timeout = {math.ceil(seconds)}"


#: Asked for alone, CONNECTION_ID() would be answered by some proxies themselves.
WHO = "SELECT VERSION(), CONNECTION_ID(), @@GLOBAL.read_only; SHOW SESSION STATUS LIKE 'Ssl_cipher'"


def begin(mariadb: bool, longest: float) -> str:
    """Return the statements that begin a session.

    A statement waits for another transaction for at most *longest* seconds, so that it does not keep the
    locks of a process that hangs meanwhile. The site's own limits are switched off: they would end a wait for
    a lock.
    """
    seconds = math.ceil(longest)
    unlimited = "max_statement_time" if mariadb else "max_execution_time"
    return (
        f"SET SESSION {unlimited} = 0, wait_timeout = {_IDLE}, "
        f"innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
    )


def take(lock: str, ttl: float) -> str:
    """Return 1 if the lock was free. The server does not let this overtake a session that waits."""
    return _get(lock, 0, ttl)


def wait(lock: str, window: float) -> str:
    """Return 1 when the lock is ours. Until this process accepts it, it lasts *window* seconds."""
    return _get(lock, _WAIT, window)


def _get(lock: str, longest: int, lease: float) -> str:
    # The lease begins with the lock, before this process knows of it.
    return (
        f"SET @distlock = GET_LOCK('{lock}', {longest}); "
        f"SET SESSION wait_timeout = IF(@distlock, {math.ceil(lease)}, @@SESSION.wait_timeout); "
        "SELECT @distlock"
    )


def number(lock: str, literal: str, above: int, span: int) -> str:
    """Return the first of *span* unused fence numbers, all of them above *above*."""
    return (
        f"INSERT INTO {TABLE} (lock_name, name, number) "  # noqa: S608
        f"VALUES ('{lock}', {literal}, LAST_INSERT_ID({above + 1}) + {span}) "
        f"ON DUPLICATE KEY UPDATE number = LAST_INSERT_ID(GREATEST(number, {above + 1})) + {span}; "
        "SELECT LAST_INSERT_ID()"
    )


def accept(lock: str, literal: str, ttl: float, span: int) -> str:
    return f"{_idle(ttl)}; {number(lock, literal, 0, span)}"


def release(lock: str, last: bool) -> str:
    """Return 1 if the lock was ours. *last*: the session holds no other lock, and may stay idle."""
    return f"SELECT RELEASE_LOCK('{lock}')" + (f"; {_idle(_IDLE)}" if last else "")


def state_of(lock: str, session: int) -> str:
    """Return ``granted`` if *session* has the lock, and its state otherwise: `WAITS` if it waits."""
    return (
        f"SELECT CASE WHEN IS_USED_LOCK('{lock}') = {session} THEN 'granted' ELSE "  # noqa: S608
        f"(SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {session}) END"
    )


def cancel_wait(session: int) -> str:
    return f"KILL QUERY {session}"


def is_locked(lock: str) -> str:
    return f"SELECT IS_USED_LOCK('{lock}') IS NOT NULL"


#: What the health check asks. Any user may.
SETTINGS = (
    "SHOW VARIABLES WHERE Variable_name IN "
    "('version', 'innodb_flush_log_at_trx_commit', 'max_connections', 'wsrep_on'); "
    "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
)
# A user without the right PROCESS sees only their own sessions, and of other users' only the id.
_HOLDERS = (
    f"SELECT h.name, h.session, p.USER, p.HOST FROM (SELECT name, IS_USED_LOCK(lock_name) AS session "  # noqa: S608
    f"FROM {TABLE} WHERE {{which}} HAVING session IS NOT NULL) AS h "
    "LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = h.session"
)
# A statement that waits begins with the name of its lock in quotes. Only MariaDB counts milliseconds.
_WAITERS = (
    "SELECT n.name, p.ID, p.USER, p.HOST, p.TIME FROM information_schema.PROCESSLIST AS p "  # noqa: S608
    f"JOIN {TABLE} AS n ON n.lock_name = "
    "CONVERT(SUBSTRING_INDEX(SUBSTRING_INDEX(p.INFO, CHAR(39), 2), CHAR(39), -1) USING ascii) "
    f"WHERE p.STATE = '{WAITS}' AND {{which}} "
    "ORDER BY n.name, /*M! p.TIME_MS DESC, */ p.TIME DESC, p.ID"
)


def read_sessions(execute: Execute, which: str) -> Iterator[SessionStatus]:
    """Yield the sessions at the locks whose rows of the table meet the condition *which*."""
    holders, waiters = execute(f"{_HOLDERS}; {_WAITERS}".format(which=which))
    for name, session, user, host in holders:
        yield SessionStatus(name or "", int(session or 0), None, _description(session, user, host))
    for name, session, user, host, seconds in waiters:
        yield SessionStatus(
            name or "", int(session or 0), float(seconds or 0), _description(session, user, host)
        )


def read_sessions_below(execute: Execute, prefix: str) -> Iterator[SessionStatus]:
    """Yield the sessions at the locks whose names begin with *prefix*.

    The table has a row for each name that was ever locked, so this reads it in sixteen parts.
    """
    begins = f"LEFT(name, {len(prefix)}) COLLATE utf8mb4_bin = {literal(prefix)}"
    for digit in "0123456789abcdef":
        yield from read_sessions(execute, f"lock_name LIKE '{digit}%' AND {begins}")


def _description(session: str | None, user: str | None, host: str | None) -> str:
    return f"{session} of MySQL" + (f", for {user} at {host}" if host else "")
