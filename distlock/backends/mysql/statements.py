"""The SQL: a lock's name is a digest, and the table has the numbers of its fences."""

from __future__ import annotations

import hashlib
import math

#: A year: the server wants to know how long to wait, and a wait is called off.
_EVER = 31_536_000
#: Seconds that a session may be idle that holds nothing. Ours are closed long before.
_UNUSED = 3600

TABLE = "distlock_name"
#: The state of a session that waits for a lock of GET_LOCK, as the server calls it.
WAITS = "User lock"

MAKE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ("
    "lock_name char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "name text CHARACTER SET utf8mb4 NOT NULL, "
    "number bigint NOT NULL) ENGINE = InnoDB"
)
#: A row if it is there. A user without the right to make it is refused, also where it is.
IS_MADE = (
    "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() "  # noqa: S608
    f"AND table_name = '{TABLE}'"
)


def lock_name(database: str, key: str) -> str:
    """GET_LOCK takes 64 characters, and its names are those of the whole server.

    Some servers take Shop and shop for one database. The number is that of the format.
    """
    return hashlib.sha256(f"distlock-1:{database.lower()}:{key}".encode()).hexdigest()


def literal(text: str) -> str:
    """*text* in SQL, whatever the server's sql_mode."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _idle(seconds: float) -> str:
    """The session ends when it was idle for so long: whole seconds, and not fewer than the holder counts."""
    return f"SET SESSION wait_timeout = {math.ceil(seconds)}"


#: The second number would be a proxy's own if it were asked for alone.
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
        f"SET SESSION {unlimited} = 0, wait_timeout = {_UNUSED}, "
        f"innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
    )


def take(lock: str, ttl: float) -> str:
    """1 if the lock was free. It passes nobody who waits in the server."""
    return _get(lock, 0, ttl)


def wait(lock: str, window: float) -> str:
    """1 when the lock is ours. Nobody may have noticed: it is worth *window* seconds until then."""
    return _get(lock, _EVER, window)


def _get(lock: str, longest: int, lease: float) -> str:
    # The answer begins with the first statement's, and the lease without a word of ours.
    return (
        f"SET @distlock = GET_LOCK('{lock}', {longest}); "
        f"SET SESSION wait_timeout = IF(@distlock, {math.ceil(lease)}, @@SESSION.wait_timeout); "
        "SELECT @distlock"
    )


def number(lock: str, literal: str, above: int, span: int) -> str:
    """The first of *span* numbers that nobody had, all of them above *above*."""
    return (
        f"INSERT INTO {TABLE} (lock_name, name, number) "  # noqa: S608
        f"VALUES ('{lock}', {literal}, LAST_INSERT_ID({above + 1}) + {span}) "
        f"ON DUPLICATE KEY UPDATE number = LAST_INSERT_ID(GREATEST(number, {above + 1})) + {span}; "
        "SELECT LAST_INSERT_ID()"
    )


def accept(lock: str, literal: str, ttl: float, span: int) -> str:
    return f"{_idle(ttl)}; {number(lock, literal, 0, span)}"


def give_back(lock: str, last: bool) -> str:
    """*last*: the session holds nothing else, and may be idle for as long as it likes."""
    return f"SELECT RELEASE_LOCK('{lock}')" + (f"; {_idle(_UNUSED)}" if last else "")


def look(lock: str, session: int) -> str:
    """Whether *session* has the lock, or waits for it."""
    return (
        f"SELECT CASE WHEN IS_USED_LOCK('{lock}') = {session} THEN 'granted' ELSE "  # noqa: S608
        f"(SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {session}) END"
    )


def call_off(session: int) -> str:
    return f"KILL QUERY {session}"


def held(lock: str) -> str:
    return f"SELECT IS_USED_LOCK('{lock}') IS NOT NULL"
