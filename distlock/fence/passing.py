"""Passing the fence: what a fenced transaction does first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from distlock.errors import ConfigurationError, LockTimeout
from distlock.fence.row import Stamp, stamps_of
from distlock.fence.statements import UPDATE, Connection, Statements, statements_for, trouble
from distlock.grant import Fence, Grant
from distlock.names import encode

Begin = Callable[[], AbstractContextManager[object]]


class Again(Exception):
    """Another transaction was in the way: this one has to be rolled back and begun anew."""


class NoRow(Again):
    """The name has no row yet."""

    def __init__(self, stamp: Stamp) -> None:
        super().__init__(stamp)
        self.stamp = stamp


def begin_fenced(
    begin: Begin, connection: Connection, grant: Grant, left: Callable[[], float], make_table: str
) -> ExitStack:
    """Begin a transaction that is committed only if no later grant's was: leave what this returns to end it.

    *begin*: opens the outermost transaction of *connection*, with nothing read in it, and rolls it back on
    errors. *left*: seconds that may be waited. *make_table*: what to run where the table is missing. Raises
    `Overtaken`; `LockTimeout` where the transaction of an earlier grant is not over in time.
    """
    statements, stamps = statements_for(connection.kind), stamps_of(grant)
    while True:
        try:
            with ExitStack() as stack:
                stack.enter_context(begin())
                pass_fence(connection, statements, stamps, left)
                return stack.pop_all()
        except NoRow as missing:
            # By itself: two that insert at once, each in its transaction, would wait for each other:
            # https://dev.mysql.com/doc/refman/8.4/en/innodb-locks-set.html
            stamp = missing.stamp
            connection.execute(statements.insert, [stamp.row, stamp.domain, encode(stamp.name)])
        except Again as error:
            if left() <= 0:
                names = ", ".join(repr(stamp.name) for stamp in stamps)
                raise LockTimeout(
                    f"The lock {names} was granted, but the database let no transaction of it in. Try again."
                ) from error
        except Exception as error:
            if trouble(error) == "no table":
                raise ConfigurationError(
                    f"The fence's table is missing in the database. Run: {make_table}"
                ) from error
            raise


def pass_fence(
    connection: Connection, statements: Statements, stamps: Sequence[Stamp], left: Callable[[], float]
) -> None:
    """Lock the rows of *stamps*, refuse what is overtaken, and write the newer fences.

    On every error the transaction has to be rolled back. Raises what `begin_fenced` raises, and `Again`.
    """
    for stamp in stamps:
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
        if (fence := stamp.next(Fence(era, number), seal)) is not None:
            connection.execute(UPDATE, [*fence, stamp.seal, stamp.row])
