"""How each kind of database locks a fence row, for a writer or for readers that share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from distlock.clock import now
from distlock.errors import ConfigurationError
from distlock.fence.stamps import TABLE
from distlock.fence.transaction_mark import TRANSACTION_ID, Mark
from distlock.fence.trouble import trouble

Rows = Sequence[Sequence[Any]]


class Connection(Protocol):
    """One connection of the user's database, as a framework gives it. Parameters are written ``%s``."""

    @property
    def kind(self) -> str:
        """``postgresql``, ``mariadb``, ``mysql`` or ``sqlite``. May have to ask the database."""

    @property
    def database(self) -> object:
        """A value that no other database has."""

    @property
    def listened(self) -> bool:
        """Whether the site's listeners for BEGIN may have read something in the new transaction already."""

    @property
    def takes_several(self) -> bool:
        """Whether `execute` takes several statements at once, on MariaDB and MySQL."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Execute *statement*, and return its rows."""

    @property
    def wants_mark(self) -> bool:
        """Whether the open transaction is the outermost one, and has no mark yet: see `mark`."""

    def mark(self, mark: Mark) -> None:
        """Have *mark* checked before the COMMIT of the open transaction, in which it is set."""


class Statements(Protocol):
    """The statements of one kind of database.

    If a wait takes too long, they raise an error for which `trouble` returns "busy".
    """

    #: Whether `share` of a missing row hinders others: it locks the gap in which they insert, or conflicts
    #: with their insert. Then, if a row is missing, the transaction is begun again without `share`.
    locks_gaps: bool

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Lock *row* until the transaction ends, waiting *seconds* at most, and return its `COLUMNS`.

        PostgreSQL adds the `TRANSACTION_ID`. Without such a row, the result is empty, and the transaction has
        to be rolled back.
        """
        # The lock service lets one caller in at a time, so the row is nearly always free.
        return self.lock_free(connection, row) or self._lock_waiting(connection, row, seconds)

    def _lock_waiting(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Do the same as `lock`, for a row that `lock_free` has not returned. Unused on SQLite."""
        return ()

    def lock_free(self, connection: Connection, row: str) -> Rows:
        """Do the same as `lock`, without a wait. The result is also empty if the row is locked."""

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        """Insert a row with *values* unless there is one. Wait *seconds* at most while others insert it."""

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        """Return epoch and number of the floor, as of now and not as of an older snapshot.

        The floor is explained in `distlock.fence.prune`. *values*: `floor_of` the namespace. Without a floor,
        the result is empty.
        """
        # This is a plain read. Without a floor, a locking one would lock the gap in which others insert.
        return connection.execute(FLOOR, values[:1])

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        """Share *row* with readers until the transaction ends, waiting *seconds* at most for a writer.

        Return its `COLUMNS`; without such a row, the result is empty. On a replica, whose locked rows keep
        nobody out, raise an error for which `trouble` returns "replica".
        """

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        """Return whether the row of *values* exists, even if it was inserted after this transaction began.

        Wait *seconds* at most for others that insert it.
        """


COLUMNS = "epoch, number, holder_id, passed_at"

#: The kinds of database that lock a row without an error even if the row is newer than the snapshot.
SNAPSHOTS = {"mysql", "mariadb"}

# Only the names of the table and its columns are interpolated.
SELECT = f"SELECT {COLUMNS} FROM {TABLE} WHERE id = %s"  # noqa: S608
#: The same for PostgreSQL, with the transaction's id for `of_transaction`.
SELECT_MARKED = f"SELECT {COLUMNS}, {TRANSACTION_ID} FROM {TABLE} WHERE id = %s"  # noqa: S608
FLOOR = f"SELECT epoch, number FROM {TABLE} WHERE id = %s"  # noqa: S608
_TOUCH = f"UPDATE {TABLE} SET holder_id = holder_id WHERE id = %s"  # noqa: S608
VALUES = f"(id, namespace, name, {COLUMNS}) VALUES (%s, %s, %s, 0, 0, '', 0)"

#: A busy timeout of SQLite, in seconds, within which SQLite tries four times.
PAUSE = 0.018

UPDATE = f"UPDATE {TABLE} SET epoch = %s, number = %s, holder_id = %s, passed_at = %s WHERE id = %s"  # noqa: S608
#: Reads the row in the transaction's snapshot, without a lock.
SEEN = f"SELECT passed_at FROM {TABLE} WHERE id = %s"  # noqa: S608
DELETE = f"DELETE FROM {TABLE} WHERE id = %s"  # noqa: S608


# On PostgreSQL, readers with `FOR SHARE` overtake a waiting writer as long as others read. So readers also
# share an advisory lock of the row, which has one queue for readers and writers. A writer that finds the row
# locked takes the advisory lock before it waits for the row. Both keep it until their transactions end. A
# writer that finds the row free doesn't need it.
#: The number of a row's advisory lock, which is made from the row's key.
NUMBER = "('x' || left({}, 16))::bit(64)::bigint"

_MINE = NUMBER.format("%s")
#: Wait for the advisory lock of a row: for exclusive use, and to share it.
_TAKE = f"SELECT pg_advisory_xact_lock({_MINE})"
_SHARE = f"SELECT pg_advisory_xact_lock_shared({_MINE})"
#: A condition that shares the advisory lock, and is false if a writer has it or waits for it.
_SHARED = f"pg_try_advisory_xact_lock_shared({_MINE})"


def _queue_for(connection: Connection, advisory: str, statement: str, row: str, seconds: float) -> Rows:
    """Wait for *row* with *advisory* and then with *statement*, for *seconds* together."""
    deadline = now() + seconds
    with _within(connection, seconds) as wait:
        connection.execute(advisory, [row])
        wait(max(0.0, deadline - now()))
        return connection.execute(statement, [row])


@contextmanager
def _within(connection: Connection, seconds: float) -> Iterator[Callable[[float], None]]:
    """Let each statement in the block wait *seconds* at most. Yield a function that changes the limit.

    After an error the setting stays, because PostgreSQL takes no more statements in the transaction.
    """
    set_timeout = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
    [(before, _)] = connection.execute(set_timeout, [f"{_milliseconds(seconds)}ms"])

    def wait(left: float) -> None:
        connection.execute(set_timeout, [f"{_milliseconds(left)}ms"])

    yield wait
    # The user's own statements wait for as long as the user has set.
    connection.execute(set_timeout, [before])


def _milliseconds(seconds: float) -> int:
    # A day is as good as no limit, and no database takes infinity.
    return max(1, math.ceil(min(seconds, 86_400.0) * 1000))


class _PostgreSQL(Statements):
    locks_gaps = True

    def lock_free(self, connection: Connection, row: str) -> Rows:
        return connection.execute(f"{SELECT_MARKED} FOR UPDATE SKIP LOCKED", [row])

    def _lock_waiting(self, connection: Connection, row: str, seconds: float) -> Rows:
        return _queue_for(connection, _TAKE, f"{SELECT_MARKED} FOR UPDATE", row, seconds)

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        # This waits for a transaction that has inserted the row and not committed.
        with _within(connection, seconds):
            connection.execute(f"INSERT INTO {TABLE} {VALUES} ON CONFLICT DO NOTHING", values)

    def floor(self, connection: Connection, values: Sequence[object], seconds: float) -> Rows:
        [(level,)] = connection.execute("SELECT current_setting('transaction_isolation')")
        if level in {"repeatable read", "serializable"}:
            # The snapshot may be older than a prune, and show neither the floor nor the pruned rows. Then the
            # attempt to write the floor fails with a conflict.
            on_conflict = "DO UPDATE SET holder_id = excluded.holder_id"
            self._try(
                connection, f"INSERT INTO {TABLE} {VALUES} ON CONFLICT (id) {on_conflict}", values, seconds
            )
        return super().floor(connection, values, seconds)

    def _try(self, connection: Connection, statement: str, values: Sequence[object], seconds: float) -> Rows:
        """Execute *statement*, and return its rows. Undo it by a savepoint, so that nobody waits for it."""
        with _within(connection, seconds):
            connection.execute("SAVEPOINT distlock_tried")
            rows = connection.execute(statement, values)
            connection.execute("ROLLBACK TO SAVEPOINT distlock_tried")
            connection.execute("RELEASE SAVEPOINT distlock_tried")
        return rows

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        if rows := connection.execute(f"{SELECT_MARKED} AND {_SHARED} FOR SHARE SKIP LOCKED", [row, row]):
            return rows
        return _queue_for(connection, _SHARE, f"{SELECT_MARKED} FOR SHARE", row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # The snapshot does not show a row that was inserted later, but an attempt to insert it finds the row
        # or fails.
        insert = f"INSERT INTO {TABLE} {VALUES} ON CONFLICT DO NOTHING RETURNING 1"
        return not self._try(connection, insert, values, seconds)


@contextmanager
def _put_back(connection: Connection, statement: str, values: Sequence[object] = ()) -> Iterator[None]:
    """Execute *statement* after the block, even if the block raises."""
    try:
        yield
    except BaseException:
        # A broken connection has nothing to put back, and the block's own error matters.
        with suppress(Exception):
            connection.execute(statement, values)
        raise
    connection.execute(statement, values)


class _MariaDB(Statements):
    locks_gaps = True

    # INSERT IGNORE would take a shared lock first and then an exclusive one, which deadlocks if three
    # transactions insert the same row at once: https://mariadb.com/kb/en/innodb-lock-modes/
    _insert = f"INSERT INTO {TABLE} {VALUES} ON DUPLICATE KEY UPDATE holder_id = holder_id"

    def lock_free(self, connection: Connection, row: str) -> Rows:
        return connection.execute(f"{SELECT} FOR UPDATE SKIP LOCKED", [row])

    def _lock_waiting(self, connection: Connection, row: str, seconds: float) -> Rows:
        # WAIT takes whole seconds.
        return connection.execute(f"{SELECT} FOR UPDATE WAIT {_whole(seconds)}", [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        wait = f"SET STATEMENT innodb_lock_wait_timeout = {_whole(seconds)} FOR"
        connection.execute(f"{wait} {self._insert}", values)

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        _refuse_replica(connection)
        return self._locking(connection, row, seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        # A locking read sees what was committed after the snapshot. If there is no row, it locks the gap in
        # which others insert, but only for the moment until COMMIT.
        return bool(self._locking(connection, str(values[0]), seconds))

    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        return connection.execute(f"{SELECT} LOCK IN SHARE MODE WAIT {_whole(seconds)}", [row])


@contextmanager
def _waiting(connection: Connection, seconds: float) -> Iterator[None]:
    """On MySQL, let each statement in the block wait *seconds* at most, rounded up to whole seconds."""
    [(before,)] = connection.execute("SELECT @@innodb_lock_wait_timeout")
    connection.execute("SET innodb_lock_wait_timeout = %s", [_whole(seconds)])
    with _put_back(connection, "SET innodb_lock_wait_timeout = %s", [before]):
        yield


class _MySQL(_MariaDB):
    def _lock_waiting(self, connection: Connection, row: str, seconds: float) -> Rows:
        with _waiting(connection, seconds):
            return connection.execute(f"{SELECT} FOR UPDATE", [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        with _waiting(connection, seconds):
            connection.execute(self._insert, values)

    def _locking(self, connection: Connection, row: str, seconds: float) -> Rows:
        with _waiting(connection, seconds):
            return connection.execute(f"{SELECT} FOR SHARE", [row])


def _with_retries(connection: Connection, statement: str, values: Sequence[object], seconds: float) -> Rows:
    """Execute *statement* on SQLite, waiting *seconds* at most for others that have its database locked."""
    deadline = now() + seconds
    [(before,)] = connection.execute("PRAGMA busy_timeout")
    with _put_back(connection, f"PRAGMA busy_timeout = {int(before)}"):
        while True:
            # SQLite has no queue: it tries again after 1, 2, 5, … and finally every 100 ms. With such pauses
            # a process would hardly ever hit the short moments between the transactions of a busy one.
            pause = min(PAUSE, deadline - now())
            connection.execute(f"PRAGMA busy_timeout = {_milliseconds(pause)}")
            try:
                return connection.execute(statement, values)
            except Exception as error:
                if trouble(error) != "busy" or now() >= deadline:
                    raise


class _SQLite(Statements):
    """SQLite, which locks the whole database, and only for writers.

    A transaction reads from a snapshot, so readers don't have to keep writers out.
    """

    locks_gaps = False
    _insert = f"INSERT OR IGNORE INTO {TABLE} {VALUES}"

    def lock(self, connection: Connection, row: str, seconds: float) -> Rows:
        # Write first: after a SELECT, the transaction would keep a snapshot that others may outdate.
        _with_retries(connection, _TOUCH, [row], seconds)
        return connection.execute(SELECT, [row])

    def lock_free(self, connection: Connection, row: str) -> Rows:
        # All callers have written before, so the whole database is locked already.
        return connection.execute(SELECT, [row])

    def insert(self, connection: Connection, values: Sequence[object], seconds: float) -> None:
        _with_retries(connection, self._insert, values, seconds)

    def share(self, connection: Connection, row: str, seconds: float) -> Rows:
        # Python's driver begins a transaction only for a write. The savepoint begins one if none is open.
        connection.execute("SAVEPOINT distlock_read")
        return _with_retries(connection, SELECT, [row], seconds)

    def is_made(self, connection: Connection, values: Sequence[object], seconds: float) -> bool:
        return False


class ReplicaRefused(Exception):
    """The database is a replica, whose locked rows keep no writers of the primary out."""

    #: The code of PostgreSQL's own error in a read-only transaction.
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


def refuse_shared_rows(kind: str) -> None:
    """Raise `ConfigurationError` if rows of *kind* can't be locks that readers share."""
    if kind == "sqlite":
        raise ConfigurationError(
            "Rows of SQLite can't be locks that readers share: it locks its whole database, and for one "
            "writer. What a transaction reads there is of one moment, and keeps no writer out. Leave the "
            "lock out for what only reads, take it as a whole, or name a lock service, such as file://."
        )


def _whole(seconds: float) -> int:
    return math.ceil(_milliseconds(seconds) / 1000)
