"""Passing the fence: what a fenced transaction does first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from weakref import WeakKeyDictionary

from distlock.errors import BackendUnavailable, ConfigurationError, LockTimeout
from distlock.fence.ending import TRANSACTION_ID, Mark, of_savepoint, of_transaction
from distlock.fence.issuing import RowGrant
from distlock.fence.reading import look_again, note_absent
from distlock.fence.row import Overtaken, ReadStamp, Stamp, floor_of, stamps_of
from distlock.fence.sharing import refuse_lines, sharing_for
from distlock.fence.statements import (
    FLOOR,
    PAUSE,
    SEEN,
    SNAPSHOTS,
    UPDATE,
    Connection,
    Statements,
    statements_for,
)
from distlock.fence.trouble import limit, no_table, old_table, trouble
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import JointGrant
from distlock.modes import READ

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
    """The keys of the rows that the latest fenced transaction of *grant* in *database* has made."""
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
            found = trouble(error)
            if found == "no table":
                # The driver's words, and those of what is around it, say no more.
                raise no_table(make_table, row_is_lock=grant.held_by_transaction) from None
            if found == "old table":
                raise old_table() from None
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
    """The row of *stamp*, which is locked from now on.

    None: it is missing, and a reader makes none.
    """
    seconds = max(0.0, left())
    try:
        if isinstance(stamp, ReadStamp):
            sharing = sharing_for(connection.kind)
            if stamp.row in missing and sharing.locks_gaps:
                return None
            rows = sharing.share(connection, stamp.row, seconds)
            if not rows and not sharing.locks_gaps:
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
    """The fence of *grant* above *stored*, if it has only fallen behind. Else raises *overtaken*."""
    if isinstance(grant, JointGrant):
        grant = grant.of(stamp.namespace, stamp.name)
    try:
        if grant.lift(stamp.name, stored.number) and (fence := grant.fences[stamp.name]) > stored:
            return fence
    except BackendUnavailable as error:
        raise overtaken from error
    raise overtaken
