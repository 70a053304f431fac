"""How each kind of database locks the fence's row, and what its errors mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from distlock.clock import now
from distlock.errors import ConfigurationError
from distlock.fence.row import TABLE

Rows = Sequence[Sequence[Any]]


class Connection(Protocol):
    """One connection of the user's database, as a framework gives it. Parameters are written ``%s``."""

    @property
    def kind(self) -> str:
        """``postgresql``, ``mariadb``, ``mysql`` or ``sqlite``. May have to ask the database."""

    @property
    def database(self) -> object:
        """Tells its database from others."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run *statement*; the rows that it gives, if it gives any."""


class Statements(Protocol):
    """One kind of database."""

    #: Makes a row where there is none. Its fence is older than every grant's.
    insert: str

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Lock *row* until the transaction ends, waiting *seconds* at most. Empty: there is no such row."""


# Nothing but the name of the table is put in.
_SELECT = f"SELECT era, number, token FROM {TABLE} WHERE id = %s"  # noqa: S608
_TOUCH = f"UPDATE {TABLE} SET token = token WHERE id = %s"  # noqa: S608
_VALUES = "(id, domain, name, era, number, token) VALUES (%s, %s, %s, 0, 0, '')"

#: Seconds in which SQLite asks four times.
PAUSE = 0.018

UPDATE = f"UPDATE {TABLE} SET era = %s, number = %s, token = %s WHERE id = %s"  # noqa: S608


class _PostgreSQL:
    insert = f"INSERT INTO {TABLE} {_VALUES} ON CONFLICT DO NOTHING"

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        # The lock service lets one in at a time: the row is free, but for rare cases.
        if rows := connection.execute(f"{_SELECT} FOR UPDATE SKIP LOCKED", [row]):
            return rows
        set_timeout = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
        [(before, _)] = connection.execute(set_timeout, [f"{_milliseconds(seconds)}ms"])
        rows = connection.execute(f"{_SELECT} FOR UPDATE", [row])
        # How long the user's own statements wait is the user's to say.
        connection.execute(set_timeout, [before])
        return rows


class _MariaDB:
    insert = f"INSERT IGNORE INTO {TABLE} {_VALUES}"

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := connection.execute(f"{_SELECT} FOR UPDATE SKIP LOCKED", [row]):
            return rows
        # It counts whole seconds.
        return connection.execute(f"{_SELECT} FOR UPDATE WAIT {_whole(seconds)}", [row])


class _MySQL(_MariaDB):
    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := connection.execute(f"{_SELECT} FOR UPDATE SKIP LOCKED", [row]):
            return rows
        [(before,)] = connection.execute("SELECT @@innodb_lock_wait_timeout")
        connection.execute("SET innodb_lock_wait_timeout = %s", [_whole(seconds)])
        try:
            return connection.execute(f"{_SELECT} FOR UPDATE", [row])
        finally:
            connection.execute("SET innodb_lock_wait_timeout = %s", [before])


class _SQLite:
    insert = f"INSERT OR IGNORE INTO {TABLE} {_VALUES}"

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        [(before,)] = connection.execute("PRAGMA busy_timeout")
        try:
            self._lock_all(connection, row, now() + seconds)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(before)}")
        return connection.execute(_SELECT, [row])

    def _lock_all(self, connection: Connection, row: str, deadline: float) -> None:
        """SQLite locks the whole database, and for writers only."""
        while True:
            # It has no queue: it asks again after 1, 2, 5, … and in the end 100 ms. With such pauses one
            # process would hardly ever meet the moment in which another one, with a queue of its own, is out.
            pause = min(PAUSE, deadline - now())
            connection.execute(f"PRAGMA busy_timeout = {_milliseconds(pause)}")
            try:
                # A transaction that begins with a SELECT reads what another one is about to change.
                connection.execute(_TOUCH, [row])
                return
            except Exception as error:
                if trouble(error) != "busy" or now() >= deadline:
                    raise


_KINDS: dict[str, Statements] = {
    "postgresql": _PostgreSQL(),
    "mariadb": _MariaDB(),
    "mysql": _MySQL(),
    "sqlite": _SQLite(),
}


def statements_for(kind: str) -> Statements:
    """The statements of *kind*. Raises `ConfigurationError` for a database that has no fence."""
    try:
        return _KINDS[kind]
    except KeyError:
        known = ", ".join(_KINDS)
        raise ConfigurationError(f"A fence needs one of {known}; the database is {kind!r}.") from None


Trouble = Literal["busy", "again", "no table", "away"]

#: SQLSTATEs of PostgreSQL, and numbers of MySQL and MariaDB.
_TROUBLES: dict[object, Trouble] = {
    "55P03": "busy",
    # The site's own statement_timeout, where it is shorter.
    "57014": "busy",
    1205: "busy",
    "40001": "again",
    "40P01": "again",
    1020: "again",
    1213: "again",
    "42P01": "no table",
    1146: "no table",
}


def ends_transaction(error: BaseException) -> bool:
    """Whether MySQL or MariaDB has rolled back all of the transaction: the next statement begins another one.

    PostgreSQL takes no more statements then, and SQLite has nothing of the kind.
    """
    return any(one.args[:1] in [(1020,), (1213,)] for one in _causes(error))


def trouble(error: BaseException) -> Trouble | None:
    """What *error* of a database means for the fence; frameworks wrap the driver's."""
    for one in _causes(error):
        for code in (getattr(one, "sqlstate", None), getattr(one, "pgcode", None), *one.args[:1]):
            if isinstance(code, str | int) and code in _TROUBLES:
                return _TROUBLES[code]
        # SQLite's errors have words only, where its driver does not add a name.
        text = str(one)
        if "database is locked" in text or "table is locked" in text:
            return "busy"
        if f"no such table: {TABLE}" in text:
            return "no table"
    # What PEP 249 calls so has nothing to do with the statement: no connection, none free, a full disk.
    names = {type(one).__name__ for one in _causes(error)}
    return "away" if names & {"OperationalError", "InterfaceError"} else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        original = getattr(error, "orig", None)
        error = original if isinstance(original, BaseException) else error.__cause__


def _milliseconds(seconds: float) -> int:
    # A day is as good as no limit, and no database takes infinity.
    return max(1, math.ceil(min(seconds, 86_400.0) * 1000))


def _whole(seconds: float) -> int:
    return math.ceil(_milliseconds(seconds) / 1000)
