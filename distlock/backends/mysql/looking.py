"""What MariaDB and MySQL tell of locks of GET_LOCK: of each who has it, and what sessions wait for."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.advisory.dialect import Say
from distlock.backends.advisory.standing import Standing
from distlock.backends.mysql.statements import TABLE, WAITS, literal

# A user without the right PROCESS sees the sessions of that user: of others the number is known.
_HELD = (
    f"SELECT h.name, h.session, p.USER, p.HOST FROM (SELECT name, IS_USED_LOCK(lock_name) AS session "  # noqa: S608
    f"FROM {TABLE} WHERE {{which}} HAVING session IS NOT NULL) AS h "
    "LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = h.session"
)
# The statement that waits begins with its lock's name in quotes. Only MariaDB counts milliseconds.
_WAITED_FOR = (
    "SELECT n.name, p.ID, p.USER, p.HOST, p.TIME FROM information_schema.PROCESSLIST AS p "  # noqa: S608
    f"JOIN {TABLE} AS n ON n.lock_name = "
    "CONVERT(SUBSTRING_INDEX(SUBSTRING_INDEX(p.INFO, CHAR(39), 2), CHAR(39), -1) USING ascii) "
    f"WHERE p.STATE = '{WAITS}' AND {{which}} "
    "ORDER BY n.name, /*M! p.TIME_MS DESC, */ p.TIME DESC, p.ID"
)


def read(say: Say, which: str) -> Iterator[Standing]:
    """Yield the rows of the table for which *which* is true."""
    held, waited_for = say(f"{_HELD}; {_WAITED_FOR}".format(which=which))
    for name, session, user, host in held:
        yield Standing(name or "", int(session or 0), None, _called(session, user, host))
    for name, session, user, host, seconds in waited_for:
        yield Standing(name or "", int(session or 0), float(seconds or 0), _called(session, user, host))


def read_all(say: Say, before: str) -> Iterator[Standing]:
    """Of the names that begin with *before*. A table has a row for each that was ever locked: in parts."""
    begins = f"LEFT(name, {len(before)}) COLLATE utf8mb4_bin = {literal(before)}"
    for digit in "0123456789abcdef":
        yield from read(say, f"lock_name LIKE '{digit}%' AND {begins}")


def _called(session: str | None, user: str | None, host: str | None) -> str:
    return f"{session} of MySQL" + (f", for {user} at {host}" if host else "")
