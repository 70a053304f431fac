"""Passing the fence: the first statements of a fenced transaction."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from weakref import WeakKeyDictionary

from distlock.backends.base import Capabilities, refuse_lacking
from distlock.clock import now
from distlock.errors import BackendUnavailable, ConfigurationError, LockLost, LockTimeout
from distlock.fence import statements as sql
from distlock.fence.row_grant import RowGrant
from distlock.fence.stamps import Overtaken, ReadStamp, Stamp, floor_of, stamps_of
from distlock.fence.statements import Connection, Rows, Statements, refuse_shared_rows, statements_for
from distlock.fence.transaction_mark import TRANSACTION_ID, Mark, of_savepoint, of_transaction
from distlock.fence.trouble import is_after_failure, limit, refuse_table, trouble
from distlock.grants.current import was_asked_for
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import JointGrant
from distlock.terms import READ

Begin = Callable[[], AbstractContextManager[object]]

#: The values of a locked row: its fence, its holder id, when it was last passed (microseconds; 0: it is new),
#: and on PostgreSQL the `TRANSACTION_ID`.
_Known = tuple[Fence, str, int, str]

#: The rows that a grant has passed, each as its database and key.
_passed: WeakKeyDictionary[Grant, set[tuple[object, str]]] = WeakKeyDictionary()
#: The rows that the latest transaction of a grant has inserted. A rollback removes them.
_made: WeakKeyDictionary[Grant, set[tuple[object, str]]] = WeakKeyDictionary()


class Again(Exception):
    """Another transaction was in the way: this one has to be rolled back and begun again."""


class NoRow(Again):
    """The name has no row yet: the transaction has to be begun again, and insert it first."""

    def __init__(self, row: str) -> None:
        self.row = row


def made_by(grant: Grant, database: object) -> list[str]:
    """Return the keys of the rows that the latest fenced transaction of *grant* in *database* inserted."""
    return [row for one, row in _made.get(grant, ()) if one == database]


def begin_fenced(
    begin: Begin,
    connection: Connection,
    grant: Grant,
    left: Callable[[], float],
    table_remedy: str,
    *,
    again: bool = False,
    checks_absent: bool = True,
) -> ExitStack:
    """Begin a transaction that is committed only if no later grant's was. Close the returned stack to end it.

    *begin*: opens the outermost transaction of *connection*, with nothing read in it, and rolls it back on
    errors. *left*: returns the seconds that may be waited. *table_remedy*: the remedy for a missing table.
    *again*: whether *grant* has committed a transaction before. *checks_absent*: whether the stack calls
    `check_absent_rows` before COMMIT.

    Raises `Overtaken` or `OldEpoch`; `LockTimeout` if the transaction of an earlier grant does not end in
    time; `ConfigurationError` if the table is missing or the database is a replica; `BackendUnavailable` if
    the lock is a row and the database does not answer.
    """
    missing: set[str] = set()
    while True:
        if isinstance(grant, RowGrant) and not again:
            grant.begin_anew()
        try:
            with ExitStack() as stack:
                _open(stack, begin)
                # For some databases, `kind` is a query, which may fail.
                pass_fence(connection, statements_for(connection.kind), grant, left, missing)
                if checks_absent:
                    stack.enter_context(_absent_rows_checked(connection, grant, left))
                return stack.pop_all()
        except Again as error:
            if isinstance(error, NoRow) and error.row not in missing:
                missing.add(error.row)
            elif left() <= 0:
                names = ", ".join(map(repr, grant.names))
                raise LockTimeout(
                    f"The lock {names} was granted, but earlier transactions kept its row in the "
                    "database. Try again."
                ) from error
        except Exception as error:
            refuse_table(error, table_remedy, row_is_lock=grant.held_by_transaction)
            found = trouble(error)
            if found == "replica":
                raise ConfigurationError(
                    f"The lock {', '.join(map(repr, grant.names))} can't be fenced on a replica, or where "
                    "nothing may be written: its row there keeps nobody out. Fence it in the primary "
                    "database, or leave the fence out."
                ) from error
            if found == "away" and grant.held_by_transaction:
                names = ", ".join(map(repr, grant.names))
                raise BackendUnavailable(
                    f"The database does not answer, and the lock {names} is a row of it. Nothing was done."
                ) from error
            raise


@contextmanager
def _absent_rows_checked(connection: Connection, grant: Grant, left: Callable[[], float]) -> Iterator[None]:
    yield
    check_absent_rows(connection, grant, left)


def _open(stack: ExitStack, begin: Begin) -> None:
    try:
        stack.enter_context(begin())
    except Exception as error:
        # SQLite's BEGIN IMMEDIATE locks the whole database. It waits only for the connection's own timeout.
        if trouble(error) == "busy":
            time.sleep(sql.PAUSE)
            raise Again from error
        raise


def pass_fence(
    connection: Connection,
    statements: Statements,
    grant: Grant,
    left: Callable[[], float],
    missing: Collection[str] = (),
) -> None:
    """Lock the rows of *grant*'s names, refuse an overtaken grant, and write its fences, unless it reads.

    *missing*: keys of rows to insert if they are missing. After any error, roll the transaction back.
    Raises `Overtaken`, `OldEpoch`, `LockTimeout`, `Again`, `ConfigurationError`, and errors of the database.
    """
    if grant.held_by_transaction and grant.mode == READ:
        refuse_shared_rows(connection.kind)
    # Lock all rows before any plain SELECT, even that of the floor: under REPEATABLE READ, MariaDB and MySQL
    # take the transaction's snapshot at the first one.
    found = [(stamp, _lock_row(connection, statements, stamp, left, missing)) for stamp in stamps_of(grant)]
    if connection.listened and connection.kind in sql.SNAPSHOTS:
        _refuse_stale(connection, {stamp.row: known[2] for stamp, known in found if known is not None})
    note_absent(grant, connection, [one for one, known in found if isinstance(one, ReadStamp) and not known])
    passed, made = _passed.setdefault(grant, set()), _made.setdefault(grant, set())
    mark, then = _mark_for(connection, grant, found)
    floors: dict[str, Fence] = {}
    for stamp, known in found:
        if known is None:
            if grant.held_by_transaction:
                # A reader found no row, so its fence is the floor's. `check_absent_rows` finds later writers.
                floor = connection.execute(sql.FLOOR, floor_of(stamp.namespace)[:1])
                stamp.next(Fence(*floor[0]) if floor else Fence(0, 0), "")
            continue
        stored, holder_id, passed_at, *_ = known
        row = (connection.database, stamp.row)
        if passed_at:
            made.discard(row)
        else:
            made.add(row)
            if stamp.namespace not in floors:
                floors[stamp.namespace] = _floor(connection, statements, stamp, left)
            stored = floors[stamp.namespace]
        try:
            fence = stamp.next(stored, holder_id)
        except Overtaken as overtaken:
            # This grant has passed the row before, so the larger number was written by a later grant, even
            # if the lock service says that the lock is still ours.
            if row in passed:
                raise
            fence = _lift(grant, stamp, stored, overtaken)
        if isinstance(stamp, ReadStamp):
            passed.add(row)
            continue
        # Write the row even if its values stay the same. Under PostgreSQL's REPEATABLE READ, a waiter's
        # snapshot is older than our commit, and only a change of the row makes its statement fail.
        when = max(passed_at + 1, time.time_ns() // 1000)
        update = sql.UPDATE
        if then and stamp is found[-1][0] and connection.takes_several:
            update, then = f"{sql.UPDATE}; {then}", ""
        connection.execute(update, [*fence, stamp.holder_id, when, stamp.row])
        passed.add(row)
    if then:
        connection.execute(then)
    if mark is not None:
        connection.mark(mark)


def _mark_for(
    connection: Connection, grant: Grant, found: Sequence[tuple[Stamp, _Known | None]]
) -> tuple[Mark | None, str]:
    """Return the mark of the open transaction, if it wants one, and the statement that sets it, or ""."""
    if not connection.wants_mark:
        return None, ""
    if connection.kind != "postgresql":
        return of_savepoint(grant.names)
    number = next((known[3] for _, known in found if known), "")
    if not number:
        # No statement has returned the id yet: a reader has found no row.
        [(number,)] = connection.execute(f"SELECT {TRANSACTION_ID}")
    return of_transaction(grant.names, number), ""


def _lock_row(
    connection: Connection,
    statements: Statements,
    stamp: Stamp,
    left: Callable[[], float],
    missing: Collection[str],
) -> _Known | None:
    """Lock the row of *stamp* and return its values.

    If the row is missing, raise `NoRow`, or return None if a reader goes on without it.
    """
    seconds = max(0.0, left())
    try:
        if isinstance(stamp, ReadStamp):
            if stamp.row in missing and statements.locks_gaps:
                return None
            rows = statements.share(connection, stamp.row, seconds)
            if not rows and not statements.locks_gaps:
                return None
        else:
            if stamp.row in missing:
                # The fenced transaction itself inserts the row, so that a rollback leaves no row.
                statements.insert(connection, stamp.values, seconds)
            rows = statements.lock(connection, stamp.row, max(0.0, left()))
    except Exception as error:
        _raise_if_timeout_or_conflict(error, stamp, seconds)
        raise
    if not rows:
        raise NoRow(stamp.row)
    [(epoch, number, holder_id, passed_at, *transaction)] = rows
    return Fence(epoch, number), holder_id, passed_at, str(*transaction)


def _refuse_stale(connection: Connection, rows: Mapping[str, int]) -> None:
    """Raise `Again` if the snapshot, which a listener may have taken early, is older than a locked row.

    *rows*: when each row was last passed, by key.
    """
    for row, passed_at in rows.items():
        if [tuple(seen) for seen in connection.execute(sql.SEEN, [row])] != [(passed_at,)]:
            raise Again


def _floor(connection: Connection, statements: Statements, stamp: Stamp, left: Callable[[], float]) -> Fence:
    """Return the fence from which a new row starts: the largest pruned one, which may be of the same name."""
    seconds = max(0.0, left())
    try:
        rows = statements.floor(connection, floor_of(stamp.namespace), seconds)
    except Exception as error:
        _raise_if_timeout_or_conflict(error, stamp, seconds)
        raise
    return Fence(*rows[0]) if rows else Fence(0, 0)


def _raise_if_timeout_or_conflict(error: Exception, stamp: Stamp, seconds: float) -> None:
    """Raise `LockTimeout` if *error* says that a wait took too long, `Again` if it is a conflict."""
    match trouble(error):
        case "busy" if (setting := limit(error)) is not None:
            raise LockTimeout(
                f"The database ended the wait for the row of the lock {stamp.name!r} early, as a {setting} "
                f"shorter than TIMEOUT does. Try again later, or raise {setting}."
            ) from error
        case "busy":
            raise LockTimeout(stamp.kept_out(seconds)) from error
        case "again":
            raise Again from error


def _lift(grant: Grant, stamp: Stamp, stored: Fence, overtaken: Overtaken) -> Fence:
    """Lift the fence of *grant* above *stored*, and return it. Raise *overtaken* if the lock was lost."""
    if isinstance(grant, JointGrant):
        grant = grant.of(stamp.namespace, stamp.name)
    try:
        if grant.raise_fence(stamp.name, stored.number) and (fence := grant.fences[stamp.name]) > stored:
            return fence
    except BackendUnavailable as error:
        raise overtaken from error
    raise overtaken


# -- readers ----------------------------------------------------------------------------------------------
#
# Readers share the row, and write nothing into it. While a reader has the row, no writer passes. If there is
# no row yet, there is nothing to share. Then a reader looks again before its COMMIT for a writer that has
# inserted the row meanwhile.

#: The stamps of a reader whose rows were missing in its latest transaction, by database.
_absent: WeakKeyDictionary[Grant, dict[object, list[ReadStamp]]] = WeakKeyDictionary()


class OvertakenReader(LockLost):
    """A writer has inserted a row that was missing: the reader may have seen only half of its changes."""

    def __init__(self, stamp: ReadStamp) -> None:
        super().__init__(
            f"The lock {stamp.name!r} was overtaken: somebody wrote under it for the first time while this "
            "transaction read. Nothing is committed. Try again."
        )


def note_absent(grant: Grant, connection: Connection, stamps: list[ReadStamp]) -> None:
    """Note *stamps* as those whose rows are missing in the transaction that *grant* begins."""
    if stamps or grant in _absent:
        _absent.setdefault(grant, {})[connection.database] = stamps


@contextmanager
def absent_rows_kept(grant: Grant, database: object) -> Iterator[None]:
    """Keep the noted stamps while the block passes the fence again in the same transaction."""
    before = _absent.get(grant, {}).get(database, [])
    try:
        yield
    finally:
        if before:
            # A first writer may have inserted a row after this transaction read what it protects.
            rows = {stamp.row: stamp for stamp in [*before, *_absent[grant][database]]}
            _absent[grant][database] = list(rows.values())


def absent_for(grant: Grant, database: object) -> list[str]:
    """Return the keys of the rows that the latest transaction of *grant* in *database* did not find."""
    return [stamp.row for stamp in _absent.get(grant, {}).get(database, ())]


def check_absent_rows(connection: Connection, grant: Grant, left: Callable[[], float]) -> None:
    """Raise `OvertakenReader` if a writer has inserted a row that *grant*, a reader's, did not find.

    Call this last before COMMIT, and roll back if it raises. *left*: returns the seconds that may be waited.
    """
    for stamp in _absent.get(grant, {}).get(connection.database, ()):
        try:
            made = statements_for(connection.kind).is_made(connection, stamp.values, max(0.0, left()))
        except Exception as error:
            # Another transaction is inserting the row, or did so after the snapshot of this one.
            if trouble(error) in {"busy", "again"}:
                raise OvertakenReader(stamp) from error
            raise
        if made:
            raise OvertakenReader(stamp)


# -- transactions that write nothing ------------------------------------------------------------------------
#
# A transaction that wrote nothing deletes its new row, which would protect nothing, so that invented names in
# requests don't fill the table. The database says whether something was written, because triggers and
# functions write, too.

#: A query whose result changes once the transaction has written something, by kind of database.
_WRITTEN = {
    # This lists the tables that the transaction has locked as a writer. Such locks last until it ends.
    "postgresql": "SELECT DISTINCT relation FROM pg_locks WHERE pid = pg_backend_pid() "
    "AND locktype = 'relation' AND mode NOT IN ('AccessShareLock', 'RowShareLock') ORDER BY 1",
    # This counts the connection's write requests to its tables.
    "mariadb": "SHOW SESSION STATUS WHERE Variable_name "
    "IN ('Handler_write', 'Handler_update', 'Handler_delete')",
    # This counts the rows that the connection has changed.
    "sqlite": "SELECT total_changes()",
}
_WRITTEN["mysql"] = _WRITTEN["mariadb"]


@contextmanager
def unless_unused(connection: Connection, grant: Grant, goes_on: Callable[[], bool]) -> Iterator[None]:
    """Delete the rows that *grant* has inserted in this transaction, if the block writes nothing.

    *goes_on*: returns whether a later transaction of the grant may rely on what this one has read.
    """
    rows = made_by(grant, connection.database)
    before = _written(connection) if rows else ()
    yield
    # If code has asked for the fence, the row has to remember it, because later fences have to be larger.
    if not rows or was_asked_for(grant) or goes_on():
        return
    try:
        if _written(connection) == before:
            for row in rows:
                connection.execute(sql.DELETE, [row])
    except Exception as error:
        # PostgreSQL refuses the query after a failed statement, even if the view has caught that error. Then
        # the transaction is rolled back anyway, and the new rows with it.
        if not is_after_failure(error):
            raise


def _written(connection: Connection) -> Rows:
    return [tuple(row) for row in connection.execute(_WRITTEN[connection.kind])]


def time_left(grant: Grant) -> Callable[[], float]:
    """Return a function that returns the seconds left to wait for earlier transactions.

    They may take as long as the lock's timeout, counted from now.
    """
    deadline = now() + grant.timeout if grant.timeout >= 0 else math.inf
    return lambda: deadline - now()


def refuse_unfit(call: str, grant: Grant) -> None:
    """Raise `ConfigurationError` if *call* can't begin a transaction under *grant*.

    A lock that is a row has its transaction already; a lock service without numbers can't be fenced; and in a
    coroutine the database would block the event loop.
    """
    if grant.held_by_transaction:
        raise ConfigurationError(
            f"The lock {', '.join(map(repr, grant.names))} is a row, and this block is its transaction "
            f"already: leave {call} out."
        )
    if grant.unnumbered_by is not None:
        refuse_lacking(grant.unnumbered_by, Capabilities(), "fence", call)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{call} waits for a database, and no other task of this event loop would run meanwhile. Write lock "
        "and transaction in a plain function, and call that with asyncio.to_thread() or sync_to_async()."
    )
