"""Passing the fence: what a fenced transaction does first."""

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
from distlock.fence.ending import TRANSACTION_ID, Mark, of_savepoint, of_transaction
from distlock.fence.issuing import RowGrant
from distlock.fence.row import Overtaken, ReadStamp, Stamp, floor_of, stamps_of
from distlock.fence.statements import (
    DELETE,
    FLOOR,
    PAUSE,
    SEEN,
    SNAPSHOTS,
    UPDATE,
    Connection,
    Rows,
    Statements,
    refuse_lines,
    statements_for,
)
from distlock.fence.trouble import has_failed, limit, refuse_table, trouble
from distlock.grants.current import was_asked_for
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import JointGrant
from distlock.terms import READ

Begin = Callable[[], AbstractContextManager[object]]

#: What a locked row has: its fence, its holder id, when it was last passed (0: it was made just now), and on
#: PostgreSQL the `TRANSACTION_ID`.
_Known = tuple[Fence, str, int, str]

#: Which rows of which databases a grant has written.
_passed: WeakKeyDictionary[Grant, set[tuple[object, str]]] = WeakKeyDictionary()
#: The rows that the writing transaction has made. They go if it is rolled back.
_made: WeakKeyDictionary[Grant, set[tuple[object, str]]] = WeakKeyDictionary()


class Again(Exception):
    """Another transaction was in the way: this one has to be rolled back and begun anew."""


class NoRow(Again):
    """The name has no row yet: what begins anew has to insert it first."""

    def __init__(self, row: str) -> None:
        super().__init__(row)
        self.row = row


def made_by(grant: Grant, database: object) -> list[str]:
    """Return the keys of the rows that the latest fenced transaction of *grant* in *database* has made."""
    return [row for one, row in _made.get(grant, ()) if one == database]


def begin_fenced(
    begin: Begin,
    connection: Connection,
    grant: Grant,
    left: Callable[[], float],
    make_table: str,
    *,
    again: bool = False,
    looks_again: bool = True,
) -> ExitStack:
    """Begin a transaction that is committed only if no later grant's was: leave what this returns to end it.

    *begin*: opens the outermost transaction of *connection*, with nothing read in it, and rolls it back on
    errors. *left*: seconds that may be waited. *make_table*: what to do where the table is missing. *again*:
    whether *grant* has committed a transaction before. *looks_again*: whether what this returns has a reader
    look again at its end, before COMMIT. Raises `Overtaken`; `LockTimeout` where the transaction of an
    earlier grant is not over in time.
    """
    missing: set[str] = set()
    while True:
        if isinstance(grant, RowGrant) and not again:
            grant.begin_anew()
        try:
            with ExitStack() as stack:
                _open(stack, begin)
                # The kind of some databases is known only when they were asked, and they may be away.
                pass_fence(connection, statements_for(connection.kind), grant, left, missing)
                if looks_again:
                    stack.enter_context(_looking_again(connection, grant, left))
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
            refuse_table(error, make_table, row_is_lock=grant.held_by_transaction)
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
def _looking_again(connection: Connection, grant: Grant, left: Callable[[], float]) -> Iterator[None]:
    yield
    look_again(connection, grant, left)


def _open(stack: ExitStack, begin: Begin) -> None:
    try:
        stack.enter_context(begin())
    except Exception as error:
        # SQLite's BEGIN IMMEDIATE locks the whole database, and waits for that as its connection is told.
        if trouble(error) == "busy":
            time.sleep(PAUSE)
            raise Again from error
        raise


def pass_fence(
    connection: Connection,
    statements: Statements,
    grant: Grant,
    left: Callable[[], float],
    missing: Collection[str] = (),
) -> None:
    """Lock the rows of *grant*'s names, refuse what is overtaken, and write the newer fences.

    *missing*: keys of rows that may have to be made. On every error the transaction has to be rolled back.
    Raises what `begin_fenced` raises, and `Again`.
    """
    if grant.held_by_transaction and grant.mode == READ:
        refuse_lines(connection.kind)
    # All are locked before anything is read without a lock: on MariaDB and MySQL the first such SELECT under
    # REPEATABLE READ decides what the transaction sees, and so does the floor's.
    found = [(stamp, _locked(connection, statements, stamp, left, missing)) for stamp in stamps_of(grant)]
    if connection.listened and connection.kind in SNAPSHOTS:
        _refuse_stale(connection, {stamp.row: known[2] for stamp, known in found if known is not None})
    note_absent(grant, connection, [one for one, known in found if isinstance(one, ReadStamp) and not known])
    passed, made = _passed.setdefault(grant, set()), _made.setdefault(grant, set())
    mark, then = _mark_for(connection, grant, found)
    floors: dict[str, Fence] = {}
    for stamp, known in found:
        if known is None:
            if grant.held_by_transaction:
                # The pruned rows of this snapshot: later ones are looked for before COMMIT.
                floor = connection.execute(FLOOR, floor_of(stamp.namespace)[:1])
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
            # A larger number than our own was written after it, whatever the lock service says.
            if row in passed:
                raise
            fence = _lifted(grant, stamp, stored, overtaken)
        if isinstance(stamp, ReadStamp):
            passed.add(row)
            continue
        # Even if it stands there already: a waiter under PostgreSQL's REPEATABLE READ learns only from a
        # change of the row that its snapshot, which is older than the wait, does not show what we commit.
        when = max(passed_at + 1, time.time_ns() // 1000)
        update = UPDATE
        if then and stamp is found[-1][0] and connection.takes_several:
            update, then = f"{UPDATE}; {then}", ""
        connection.execute(update, [*fence, stamp.holder_id, when, stamp.row])
        passed.add(row)
    if then:
        connection.execute(then)
    if mark is not None:
        connection.mark(mark)


def _mark_for(
    connection: Connection, grant: Grant, found: Sequence[tuple[Stamp, _Known | None]]
) -> tuple[Mark | None, str]:
    """The mark of the open transaction, if it wants one, and the statement that sets it; "": it is set."""
    if not connection.wants_mark:
        return None, ""
    if connection.kind != "postgresql":
        return of_savepoint(grant.names)
    number = next((known[3] for _, known in found if known), "")
    if not number:
        # A reader that has found no row.
        [(number,)] = connection.execute(f"SELECT {TRANSACTION_ID}")
    return of_transaction(grant.names, number), ""


def _locked(
    connection: Connection,
    statements: Statements,
    stamp: Stamp,
    left: Callable[[], float],
    missing: Collection[str],
) -> _Known | None:
    """Return the row of *stamp*, which is locked from now on.

    None: it is missing, and a reader makes none.
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
                # In the transaction that it is for: what is rolled back leaves none.
                statements.insert(connection, stamp.values, seconds)
            rows = statements.lock(connection, stamp.row, max(0.0, left()))
    except Exception as error:
        _raise_meant(error, stamp, seconds)
        raise
    if not rows:
        raise NoRow(stamp.row)
    [(epoch, number, holder_id, passed_at, *transaction)] = rows
    return Fence(epoch, number), holder_id, passed_at, str(*transaction)


def _refuse_stale(connection: Connection, rows: Mapping[str, int]) -> None:
    """Raise `Again` if the snapshot is older than the last passage of *rows*: a listener has read before."""
    for row, passed_at in rows.items():
        if [tuple(seen) for seen in connection.execute(SEEN, [row])] != [(passed_at,)]:
            raise Again


def _floor(connection: Connection, statements: Statements, stamp: Stamp, left: Callable[[], float]) -> Fence:
    """Where a new row starts: above those that were pruned, which may have been its own."""
    seconds = max(0.0, left())
    try:
        rows = statements.floor(connection, floor_of(stamp.namespace), seconds)
    except Exception as error:
        _raise_meant(error, stamp, seconds)
        raise
    return Fence(*rows[0]) if rows else Fence(0, 0)


def _raise_meant(error: Exception, stamp: Stamp, seconds: float) -> None:
    """Raise what *error* means for the fence, if it is a wait that was too long or a conflict."""
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


def _lifted(grant: Grant, stamp: Stamp, stored: Fence, overtaken: Overtaken) -> Fence:
    """Return the fence of *grant* above *stored*, if it has only fallen behind. Else raises *overtaken*."""
    if isinstance(grant, JointGrant):
        grant = grant.of(stamp.namespace, stamp.name)
    try:
        if grant.lift(stamp.name, stored.number) and (fence := grant.fences[stamp.name]) > stored:
            return fence
    except BackendUnavailable as error:
        raise overtaken from error
    raise overtaken


# -- readers ----------------------------------------------------------------------------------------------
#
# Readers share the row, and write nothing into it. While a reader has the row, no writer passes. Where there
# is no row yet there is nothing to share: then a reader looks again before its COMMIT, for a writer that has
# made the row meanwhile.

#: By database: the names of a reader that had no row in its latest transaction there.
_absent: WeakKeyDictionary[Grant, dict[object, list[ReadStamp]]] = WeakKeyDictionary()


class OvertakenReader(LockLost):
    """A writer has made the row of a name that had none: what was read may be half of what it wrote."""

    def __init__(self, stamp: ReadStamp) -> None:
        super().__init__(
            f"The lock {stamp.name!r} was overtaken: somebody wrote under it for the first time while this "
            "transaction read. Nothing is committed. Try again."
        )


def note_absent(grant: Grant, connection: Connection, stamps: list[ReadStamp]) -> None:
    """*grant* begins a transaction in which *stamps* have no row."""
    if stamps or grant in _absent:
        _absent.setdefault(grant, {})[connection.database] = stamps


def absent_for(grant: Grant, database: object) -> list[str]:
    """Return the keys of the rows that the latest transaction of *grant* in *database* did not find."""
    return [stamp.row for stamp in _absent.get(grant, {}).get(database, ())]


def look_again(connection: Connection, grant: Grant, left: Callable[[], float]) -> None:
    """To be called as the last thing before COMMIT. *left*: seconds that may be waited.

    Raises `OvertakenReader`; then the transaction has to be rolled back.
    """
    for stamp in _absent.get(grant, {}).get(connection.database, ()):
        try:
            made = statements_for(connection.kind).is_made(connection, stamp.values, max(0.0, left()))
        except Exception as error:
            # It is being made just now, or was after the snapshot of this transaction.
            if trouble(error) in {"busy", "again"}:
                raise OvertakenReader(stamp) from error
            raise
        if made:
            raise OvertakenReader(stamp)


# -- transactions that write nothing ------------------------------------------------------------------------
#
# A transaction that has written nothing leaves no new row, so that made-up names in requests fill no table.
# The row would protect nothing. Whether something was written is asked of the database, and not read from the
# statements, because triggers and functions write, too.

#: A statement whose answer changes once the transaction has written something.
_WRITTEN = {
    # The tables that it has locked as a writer does: those locks last until it ends.
    "postgresql": "SELECT DISTINCT relation FROM pg_locks WHERE pid = pg_backend_pid() "
    "AND locktype = 'relation' AND mode NOT IN ('AccessShareLock', 'RowShareLock') ORDER BY 1",
    # How often this connection has asked its tables to write.
    "mariadb": "SHOW SESSION STATUS WHERE Variable_name "
    "IN ('Handler_write', 'Handler_update', 'Handler_delete')",
    # How many rows this connection has changed.
    "sqlite": "SELECT total_changes()",
}
_WRITTEN["mysql"] = _WRITTEN["mariadb"]


@contextmanager
def unless_unused(connection: Connection, grant: Grant, goes_on: Callable[[], bool]) -> Iterator[None]:
    """Take away the rows that *grant* has made in this transaction, if the block writes nothing.

    *goes_on*: whether a later transaction of the grant may rely on what this one has read.
    """
    rows = made_by(grant, connection.database)
    before = _written(connection) if rows else ()
    yield
    # A number that somebody was told is remembered: later ones have to be larger.
    if not rows or was_asked_for(grant) or goes_on():
        return
    try:
        if _written(connection) == before:
            for row in rows:
                connection.execute(DELETE, [row])
    except Exception as error:
        # It will be rolled back, even where the view has caught the error that ended it.
        if not has_failed(error):
            raise


def _written(connection: Connection) -> Rows:
    return [tuple(row) for row in connection.execute(_WRITTEN[connection.kind])]


def time_left(grant: Grant) -> Callable[[], float]:
    """Seconds that may be waited for transactions of earlier grants, from now on: as long as for the lock."""
    deadline = now() + grant.timeout if grant.timeout >= 0 else math.inf
    return lambda: deadline - now()


def refuse_unfit(call: str, grant: Grant) -> None:
    """Raise `ConfigurationError` where *call* can't begin a transaction under *grant*.

    In a coroutine a database would stop the whole event loop. A lock that is a row has one already, and one
    of a lock service that does not number its locks can't be fenced.
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
