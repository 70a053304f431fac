"""How each kind of database locks the fence's row, for a writer or for readers that share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from distlock.clock import now
from distlock.errors import ConfigurationError
from distlock.fence.ending import TRANSACTION_ID, Mark
from distlock.fence.row import TABLE
from distlock.fence.trouble import trouble

Rows = Sequence[Sequence[Any]]


class Connection(Protocol):
    """One connection of the user's database, as a framework gives it. Parameters are written ``%s``."""

    @property
    def kind(self) -> str:
        """``postgresql``, ``mariadb``, ``mysql`` or ``sqlite``. May have to ask the database."""

    @property
    def database(self) -> object:
        """Tells its database from others."""

    @property
    def listened(self) -> bool:
        """Whether others may have read something already in the transaction that has just begun."""

    @property
    def takes_several(self) -> bool:
        """Whether `execute` takes several statements at once, on MariaDB and MySQL."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run *statement*; the rows that it gives, if it gives any."""

    @property
    def wants_mark(self) -> bool:
        """Whether the open transaction is the outermost one, and has no mark yet: see `mark`."""

    def mark(self, mark: Mark) -> None:
        """Look at *mark*, which the open transaction has, before its COMMIT."""


class Statements(Protocol):
    """One kind of database. A wait that is too long raises what `trouble` calls busy."""

    #: Whether `share` of a row that is not there stands in the way of others: it locks the gap in which they
    #: insert, or is a read of what they write. What has found none is rolled back, and asks no more.
    locks_gaps: bool

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Lock *row* until the transaction ends, waiting *seconds* at most, and give its `COLUMNS`.

        PostgreSQL adds the `TRANSACTION_ID`.
        Empty: there is no such row, and the transaction has to be rolled back.
        """

    def lock_free(self, connection: Connection, row: str) -> Rows:
        """`lock`, of a row that nobody else has locked. Empty otherwise, too."""

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        """Make a row with *values*, unless there is one: after *seconds* at most nobody else is making it."""

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        """Epoch and number of the floor, as it is while the rows are locked that were inserted before.

        *values*: those of a floor's row. Empty: there is none.
        """

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Keep writers from *row* until the transaction ends, waiting *seconds* at most for one that has it.

        Gives its `COLUMNS`. Empty: there is no such row. Raises what `trouble` calls a replica, where a
        shared row keeps nobody out.
        """

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        """Whether there is the row of *values* by now, also if it was made after this transaction began.

        After *seconds* at most nobody else is making it.
        """


COLUMNS = "epoch, number, holder_id, passed_at"

#: The kinds whose snapshot may be older than the row that is locked, and say nothing of it.
SNAPSHOTS = {"mysql", "mariadb"}

# Nothing but the names of the table and its columns is put in.
SELECT = f"SELECT {COLUMNS} FROM {TABLE} WHERE id = %s"  # noqa: S608
#: The same on PostgreSQL, with what `of_transaction` takes behind.
SELECT_MARKED = f"SELECT {COLUMNS}, {TRANSACTION_ID} FROM {TABLE} WHERE id = %s"  # noqa: S608
FLOOR = f"SELECT epoch, number FROM {TABLE} WHERE id = %s"  # noqa: S608
_TOUCH = f"UPDATE {TABLE} SET holder_id = holder_id WHERE id = %s"  # noqa: S608
VALUES = f"(id, namespace, name, {COLUMNS}) VALUES (%s, %s, %s, 0, 0, '', 0)"

#: Seconds in which SQLite asks four times.
PAUSE = 0.018

UPDATE = f"UPDATE {TABLE} SET epoch = %s, number = %s, holder_id = %s, passed_at = %s WHERE id = %s"  # noqa: S608
#: As the transaction's snapshot shows the row, without a lock.
SEEN = f"SELECT passed_at FROM {TABLE} WHERE id = %s"  # noqa: S608
DELETE = f"DELETE FROM {TABLE} WHERE id = %s"  # noqa: S608


# On PostgreSQL, `FOR SHARE` lets readers pass a writer that waits, as long as others read. So readers share
# an advisory lock of the row, too, whose line is one for all. A writer that finds the row taken takes that
# lock before it waits for the row. Both have it until their transactions end. A writer that finds the row
# free needs none.
#: The number of a row's advisory lock, made of its key.
NUMBER = "('x' || left({}, 16))::bit(64)::bigint"

_MINE = NUMBER.format("%s")
#: The waiters for a row: for exclusive use, and to share it.
_TAKE = f"SELECT pg_advisory_xact_lock({_MINE})"
_SHARE = f"SELECT pg_advisory_xact_lock_shared({_MINE})"
#: A condition: nobody is in line to have it alone, and it is shared from now on.
_SHARED = f"pg_try_advisory_xact_lock_shared({_MINE})"


def _in_line(connection: Connection, stand: str, statement: str, row: str, seconds: float) -> Rows:
    """Execute *stand* and then *statement*, which wait for *row*, for *seconds* together."""
    deadline = now() + seconds
    with _within(connection, seconds) as wait:
        connection.execute(stand, [row])
        wait(max(0.0, deadline - now()))
        return connection.execute(statement, [row])


@contextmanager
def _within(connection: Connection, seconds: float) -> Iterator[Callable[[float], None]]:
    """The block's statements wait *seconds* at most. Gives what changes that, for those that follow.

    Where one fails, PostgreSQL takes no more of them.
    """
    set_timeout = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
    [(before, _)] = connection.execute(set_timeout, [f"{_milliseconds(seconds)}ms"])

    def wait(left: float) -> None:
        connection.execute(set_timeout, [f"{_milliseconds(left)}ms"])

    yield wait
    # How long the user's own statements wait is the user's to say.
    connection.execute(set_timeout, [before])


def _milliseconds(seconds: float) -> int:
    """*seconds*, as databases take them."""
    # A day is as good as no limit, and no database takes infinity.
    return max(1, math.ceil(min(seconds, 86_400.0) * 1000))


class _PostgreSQL:
    locks_gaps = True

    def lock_free(self, connection: Connection, row: str) -> Rows:
        return connection.execute(f"{SELECT_MARKED} FOR UPDATE SKIP LOCKED", [row])

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        # The lock service lets one in at a time: the row is free, but for rare cases.
        if rows := self.lock_free(connection, row):
            return rows
        return _in_line(connection, _TAKE, f"{SELECT_MARKED} FOR UPDATE", row, seconds)

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        # A row that another transaction has inserted and not committed is waited for.
        with _within(connection, seconds):
            connection.execute(f"INSERT INTO {TABLE} {VALUES} ON CONFLICT DO NOTHING", values)

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        [(level,)] = connection.execute("SELECT current_setting('transaction_isolation')")
        if level in {"repeatable read", "serializable"}:
            # Its snapshot may be older than a prune, and show neither the floor nor what came before it.
            # To write the floor is refused then; and nobody is to wait for what is only tried.
            with _within(connection, seconds):
                connection.execute("SAVEPOINT distlock_floor")
                connection.execute(
                    f"INSERT INTO {TABLE} {VALUES} "
                    "ON CONFLICT (id) DO UPDATE SET holder_id = excluded.holder_id",
                    values,
                )
                connection.execute("ROLLBACK TO SAVEPOINT distlock_floor")
                connection.execute("RELEASE SAVEPOINT distlock_floor")
        return connection.execute(FLOOR, values[:1])

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := connection.execute(f"{SELECT_MARKED} AND {_SHARED} FOR SHARE SKIP LOCKED", [row, row]):
            return rows
        return _in_line(connection, _SHARE, f"{SELECT_MARKED} FOR SHARE", row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # A snapshot does not show what was made after it. To make it again is refused then; and nobody is to
        # wait for what is only tried.
        with _within(connection, seconds):
            connection.execute("SAVEPOINT distlock_absent")
            insert = f"INSERT INTO {TABLE} {VALUES} ON CONFLICT DO NOTHING RETURNING 1"
            absent = connection.execute(insert, values)
            connection.execute("ROLLBACK TO SAVEPOINT distlock_absent")
            connection.execute("RELEASE SAVEPOINT distlock_absent")
        return not absent


@contextmanager
def _put_back(connection: Connection, statement: str, values: Sequence[object] = ()) -> Iterator[None]:
    """Execute *statement* after the block, whatever becomes of it."""
    try:
        yield
    except BaseException:
        # A connection that broke has nothing to put back: what is told is why the block failed.
        with suppress(Exception):
            connection.execute(statement, values)
        raise
    connection.execute(statement, values)


class _MariaDB:
    locks_gaps = True

    # Two that insert one row at once, and a third: INSERT IGNORE asks for a shared lock first, and then for
    # an exclusive one: https://mariadb.com/kb/en/innodb-lock-modes/
    _insert = f"INSERT INTO {TABLE} {VALUES} ON DUPLICATE KEY UPDATE holder_id = holder_id"

    def lock_free(self, connection: Connection, row: str) -> Rows:
        return connection.execute(f"{SELECT} FOR UPDATE SKIP LOCKED", [row])

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := self.lock_free(connection, row):
            return rows
        # It counts whole seconds.
        return connection.execute(f"{SELECT} FOR UPDATE WAIT {_whole(seconds)}", [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        wait = f"SET STATEMENT innodb_lock_wait_timeout = {_whole(seconds)} FOR"
        connection.execute(f"{wait} {self._insert}", values)

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        # A plain read: where there is none, a locking one would lock the gap in which others insert.
        return connection.execute(FLOOR, values[:1])

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        _refuse_replica(connection)
        return self._locking(connection, row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # A locking read sees what was committed after the snapshot. Where there is no row it locks the gap in
        # which others insert, for the moment until COMMIT.
        return bool(self._locking(connection, str(values[0]), seconds))

    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        # It counts whole seconds.
        return connection.execute(f"{SELECT} LOCK IN SHARE MODE WAIT {_whole(seconds)}", [row])


@contextmanager
def _waiting(connection: Connection, seconds: float) -> Iterator[None]:
    """The block's statements wait *seconds* at most, on MySQL, which counts whole ones."""
    [(before,)] = connection.execute("SELECT @@innodb_lock_wait_timeout")
    connection.execute("SET innodb_lock_wait_timeout = %s", [_whole(seconds)])
    with _put_back(connection, "SET innodb_lock_wait_timeout = %s", [before]):
        yield


class _MySQL(_MariaDB):
    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := self.lock_free(connection, row):
            return rows
        with _waiting(connection, seconds):
            return connection.execute(f"{SELECT} FOR UPDATE", [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        with _waiting(connection, seconds):
            connection.execute(self._insert, values)

    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        with _waiting(connection, seconds):
            return connection.execute(f"{SELECT} FOR SHARE", [row])


def _patiently(connection: Connection, statement: str, values: Sequence[object], seconds: float) -> Rows:
    """Execute *statement* on SQLite, waiting *seconds* at most for others that have its database locked."""
    deadline = now() + seconds
    [(before,)] = connection.execute("PRAGMA busy_timeout")
    with _put_back(connection, f"PRAGMA busy_timeout = {int(before)}"):
        while True:
            # It has no queue: it asks again after 1, 2, 5, … and in the end 100 ms. With such pauses one
            # process would hardly ever meet the moment in which another one, with a queue, is out.
            pause = min(PAUSE, deadline - now())
            connection.execute(f"PRAGMA busy_timeout = {_milliseconds(pause)}")
            try:
                return connection.execute(statement, values)
            except Exception as error:
                if trouble(error) != "busy" or now() >= deadline:
                    raise


class _SQLite:
    """SQLite, which locks the whole database, and for writers only.

    A transaction reads one moment there, so that nobody has to be kept from it.
    """

    locks_gaps = False
    _insert = f"INSERT OR IGNORE INTO {TABLE} {VALUES}"

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        # A transaction that begins with a SELECT reads what another one is about to change.
        _patiently(connection, _TOUCH, [row], seconds)
        return connection.execute(SELECT, [row])

    def lock_free(self, connection: Connection, row: str) -> Rows:
        # Where it is asked for, something was written before.
        return connection.execute(SELECT, [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        _patiently(connection, self._insert, values, seconds)

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        return connection.execute(FLOOR, values[:1])

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        # Python's driver begins a transaction only for a write: this begins one where there is none.
        connection.execute("SAVEPOINT distlock_read")
        return _patiently(connection, SELECT, [row], seconds)

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


_KINDS: dict[str, Statements] = {
    "postgresql": _PostgreSQL(),
    "mariadb": _MariaDB(),
    "mysql": _MySQL(),
    "sqlite": _SQLite(),
}


def statements_for(kind: str) -> Statements:
    """Return the statements of *kind*. Raises `ConfigurationError` for a database that has no fence."""
    try:
        return _KINDS[kind]
    except KeyError:
        known = ", ".join(_KINDS)
        raise ConfigurationError(f"A fence needs one of {known}; the database is {kind!r}.") from None


def refuse_lines(kind: str) -> None:
    """Raise `ConfigurationError` where no row of *kind* can be a lock that readers share."""
    if kind == "sqlite":
        raise ConfigurationError(
            "Rows of SQLite can't be locks that readers share: it locks its whole database, and for one "
            "writer. What a transaction reads there is of one moment, and keeps no writer out. Leave the "
            "lock out for what only reads, take it as a whole, or name a lock service, such as file://."
        )


def _whole(seconds: float) -> int:
    return math.ceil(_milliseconds(seconds) / 1000)
