"""Passing the fence: what a fenced transaction does first."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from weakref import WeakKeyDictionary

from distlock.errors import BackendUnavailable, ConfigurationError, LockTimeout
from distlock.fence.issuing import RowGrant
from distlock.fence.row import Overtaken, Stamp, stamps_of
from distlock.fence.statements import PAUSE, UPDATE, Connection, Statements, statements_for, trouble
from distlock.grant import Fence, Grant
from distlock.names import encode

Begin = Callable[[], AbstractContextManager[object]]

#: Which rows of which databases a grant has written.
_passed: WeakKeyDictionary[Grant, set[tuple[object, str]]] = WeakKeyDictionary()


class Again(Exception):
    """Another transaction was in the way: this one has to be rolled back and begun anew."""


class NoRow(Again):
    """The name has no row yet."""

    def __init__(self, stamp: Stamp) -> None:
        super().__init__(stamp)
        self.stamp = stamp


def begin_fenced(
    begin: Begin,
    connection: Connection,
    grant: Grant,
    left: Callable[[], float],
    make_table: str,
    *,
    again: bool = False,
) -> ExitStack:
    """Begin a transaction that is committed only if no later grant's was: leave what this returns to end it.

    *begin*: opens the outermost transaction of *connection*, with nothing read in it, and rolls it back on
    errors. *left*: seconds that may be waited. *make_table*: what to do where the table is missing. *again*:
    whether *grant* has committed a transaction before. Raises `Overtaken`; `LockTimeout` where the
    transaction of an earlier grant is not over in time.
    """
    missing: Stamp | None = None
    while True:
        if isinstance(grant, RowGrant) and not again:
            grant.begin_anew()
        try:
            # The kind of some databases is known only when they were asked, and they may be away.
            statements = statements_for(connection.kind)
            if missing is not None:
                _insert(connection, statements, missing)
            with ExitStack() as stack:
                _open(stack, begin)
                pass_fence(connection, statements, grant, left)
                return stack.pop_all()
        except NoRow as error:
            missing = error.stamp
        except Again as error:
            if left() <= 0:
                names = ", ".join(map(repr, grant.names))
                raise LockTimeout(
                    f"The lock {names} was granted, but the database let no transaction of it in. Try again."
                ) from error
        except Exception as error:
            found = trouble(error)
            if found == "no table":
                raise ConfigurationError(
                    f"The fence's table is missing in the database. {make_table}"
                ) from error
            if found == "away" and isinstance(grant, RowGrant):
                names = ", ".join(map(repr, grant.names))
                raise BackendUnavailable(
                    f"The database does not answer, and the lock {names} is a row of it. Nothing was done."
                ) from error
            raise


def _open(stack: ExitStack, begin: Begin) -> None:
    try:
        stack.enter_context(begin())
    except Exception as error:
        # SQLite's BEGIN IMMEDIATE locks the whole database, and waits for that as its connection is told.
        if trouble(error) == "busy":
            time.sleep(PAUSE)
            raise Again from error
        raise


def _insert(connection: Connection, statements: Statements, stamp: Stamp) -> None:
    # By itself: two that insert at once, each in its transaction, would wait for each other:
    # https://dev.mysql.com/doc/refman/8.4/en/innodb-locks-set.html
    try:
        connection.execute(statements.insert, [stamp.row, stamp.domain, encode(stamp.name)])
    except Exception as error:
        # Where any writer locks the whole database, it waits for all of them.
        if trouble(error) in {"busy", "again"}:
            raise Again from error
        raise


def pass_fence(
    connection: Connection, statements: Statements, grant: Grant, left: Callable[[], float]
) -> None:
    """Lock the rows of *grant*'s names, refuse what is overtaken, and write the newer fences.

    On every error the transaction has to be rolled back. Raises what `begin_fenced` raises, and `Again`.
    """
    for stamp in stamps_of(grant):
        seconds = max(0.0, left())
        try:
            rows = statements.lock(connection, stamp.row, seconds)
        except Exception as error:
            match trouble(error):
                case "busy":
                    raise LockTimeout(stamp.kept_out(seconds)) from error
                case "again":
                    raise Again from error
            raise
        if not rows:
            raise NoRow(stamp)
        [(era, number, seal)] = rows
        stored = Fence(era, number)
        passed = _passed.setdefault(grant, set())
        row = (connection.database, stamp.row)
        try:
            fence = stamp.next(stored, seal)
        except Overtaken as overtaken:
            # What stands above our own passage was written after it, whatever the lock service says.
            if row in passed:
                raise
            fence = _lifted(grant, stamp, stored, overtaken)
        # Even if it stands there already: who waits under PostgreSQL's REPEATABLE READ learns only from a
        # change of the row that its snapshot, which is older than the wait, does not show what we commit.
        connection.execute(UPDATE, [*fence, stamp.seal, stamp.row])
        passed.add(row)


def _lifted(grant: Grant, stamp: Stamp, stored: Fence, overtaken: Overtaken) -> Fence:
    """The fence of *grant* above *stored*, if it has only fallen behind. Else raises *overtaken*."""
    try:
        if grant.lift(stamp.name, stored.number) and (fence := grant.fences[stamp.name]) > stored:
            return fence
    except BackendUnavailable as error:
        raise overtaken from error
    raise overtaken
