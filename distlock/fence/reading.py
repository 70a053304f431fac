"""Readers at the fence: they share its row, and write nothing into it.

While a reader has the row, no writer passes. Where there is no row yet there is nothing to share: then it
looks again before its COMMIT, for a writer that has made the row meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from distlock.errors import LockLost
from distlock.fence.row import ReadStamp
from distlock.fence.sharing import sharing_for
from distlock.fence.statements import Connection
from distlock.fence.trouble import trouble
from distlock.grants.grant import Grant

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
    """The keys of the rows that the latest transaction of *grant* in *database* did not find."""
    return [stamp.row for stamp in _absent.get(grant, {}).get(database, ())]


def look_again(connection: Connection, grant: Grant, left: Callable[[], float]) -> None:
    """To be called as the last thing before COMMIT. *left*: seconds that may be waited.

    Raises `OvertakenReader`; then the transaction has to be rolled back.
    """
    for stamp in _absent.get(grant, {}).get(connection.database, ()):
        try:
            made = sharing_for(connection.kind).is_made(connection, stamp.values, max(0.0, left()))
        except Exception as error:
            # It is being made just now, or was after the snapshot of this transaction.
            if trouble(error) in {"busy", "again"}:
                raise OvertakenReader(stamp) from error
            raise
        if made:
            raise OvertakenReader(stamp)
