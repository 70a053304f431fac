"""PostgreSQL's line for a row, and how long one waits there: readers don't pass a writer that waits.

Without the line it would be: `FOR SHARE` lets readers in for as long as others read, and the writer waits
until its time-out. So readers share an advisory lock of the row, too, whose line is one for all, and a writer
that finds the row taken takes that lock before it waits for the row. Both have it until their transactions
end. A writer that finds the row free needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distlock.clock import now

if TYPE_CHECKING:
    from distlock.fence.statements import Connection, Rows

#: The number of a row's advisory lock, made of its key.
NUMBER = "('x' || left({}, 16))::bit(64)::bigint"

_MINE = NUMBER.format("%s")
#: The waiters for a row: for exclusive use, and to share it.
TAKE = f"SELECT pg_advisory_xact_lock({_MINE})"
SHARE = f"SELECT pg_advisory_xact_lock_shared({_MINE})"
#: A condition: nobody is in line to have it alone, and it is shared from now on.
SHARED = f"pg_try_advisory_xact_lock_shared({_MINE})"


def in_line(connection: Connection, stand: str, statement: str, row: str, seconds: float) -> Rows:
    """Execute *statement*, which waits for *row*, after *stand*: see `TAKE`. Both wait *seconds* together."""
    deadline = now() + seconds
    with within(connection, seconds) as wait:
        connection.execute(stand, [row])
        wait(max(0.0, deadline - now()))
        return connection.execute(statement, [row])


@contextmanager
def within(connection: Connection, seconds: float) -> Iterator[Callable[[float], None]]:
    """The block's statements wait *seconds* at most. Gives what changes that, for those that follow.

    Where one fails, PostgreSQL takes no more of them.
    """
    set_timeout = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
    [(before, _)] = connection.execute(set_timeout, [f"{milliseconds(seconds)}ms"])

    def wait(left: float) -> None:
        connection.execute(set_timeout, [f"{milliseconds(left)}ms"])

    yield wait
    # How long the user's own statements wait is the user's to say.
    connection.execute(set_timeout, [before])


def milliseconds(seconds: float) -> int:
    """*seconds*, as databases take them."""
    # A day is as good as no limit, and no database takes infinity.
    return max(1, math.ceil(min(seconds, 86_400.0) * 1000))
