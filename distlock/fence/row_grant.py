"""The lock of the backend ``database``: the fence row, which issues fences and excludes others until COMMIT.

The transaction that locks the row writes the next number into it. So fences grow without any lock service,
and a database that loses the number loses what was written under it, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from distlock.engine.sans_io import Commands
from distlock.errors import NotHeld
from distlock.fence.stamps import Overtaken, ReadStamp, Stamp, stamps_of
from distlock.grants.grant import Fence, Grant, GrantWrapper
from distlock.terms import READ


@dataclass(frozen=True, slots=True)
class IssuedStamp(Stamp):
    """A stamp that takes its number from the row. Only the epoch of its `fence` counts."""

    #: The fences that the rows have issued to the grant, by name.
    issued: dict[str, Fence]

    def next(self, stored: Fence, holder_id: str) -> Fence:
        if holder_id == self.holder_id:
            return stored
        # Begin a new epoch at 1: a lock service to which the site may move later has to exceed these numbers.
        fence = (
            Fence(self.fence.epoch, 1)
            if self.fence.epoch > stored.epoch
            else stored._replace(number=stored.number + 1)
        )
        return self.issue(fence, stored)

    def issue(self, fence: Fence, stored: Fence) -> Fence:
        """Issue *fence* to the grant, and return it. Raise `Overtaken` if the grant has another one already.

        *stored*: the row's fence, for the error.
        """
        mine = self.issued.setdefault(self.name, fence)
        if fence != mine:
            # A ROLLBACK in the middle of the block unlocked the row, and another grant has passed since.
            raise Overtaken(replace(self, fence=mine), stored)
        return fence

    def kept_out(self, seconds: float) -> str:
        return (
            f"The lock {self.name!r} was still held by somebody else's transaction after {seconds:.3g} "
            "seconds. Try again later, or raise the time-out."
        )


@dataclass(frozen=True, slots=True)
class IssuedReadStamp(IssuedStamp, ReadStamp):
    """The stamp of a reader, which has the number of the writer before it and writes nothing."""

    def next(self, stored: Fence, holder_id: str) -> Fence:
        return self.issue(max(self.fence, stored), stored)


class RowGrant(GrantWrapper):
    """The grant of locks that are fence rows: while its transaction has locked them, all others wait.

    *local*: a grant that excludes other callers in this process. *namespace*: the prefix. *epoch*: the lowest
    epoch of its fences.
    """

    __slots__ = ("_issued", "_namespace", "stamps")

    #: None: the numbers grow, because every transaction that locks the row writes the next number.
    unnumbered_by = None
    held_by_transaction = True

    def __init__(self, local: Grant, namespace: str, epoch: int) -> None:
        super().__init__(local)
        self._namespace = namespace
        self._issued: dict[str, Fence] = {}
        holder_id, least = secrets.token_hex(16), Fence(epoch, 0)
        stamp = IssuedReadStamp if local.mode == READ else IssuedStamp
        #: One for each name, in the order of names: all transactions lock the rows in this order.
        self.stamps: list[Stamp] = [
            stamp(namespace, name, least, holder_id, self._issued) for name in sorted(local.names)
        ]

    def __repr__(self) -> str:
        return f"<RowGrant of {', '.join(map(repr, self.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        return self._grant.names

    @property
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Raises `NotHeld` until the transaction has locked the rows."""
        if len(self._issued) < len(self.stamps):
            names = ", ".join(map(repr, self.names))
            raise NotHeld(f"The fence of {names} is not known before the transaction that locks its row.")
        return dict(self._issued)

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def holder_ids(self) -> Mapping[str, str]:
        return {stamp.name: stamp.holder_id for stamp in self.stamps}

    def begin_anew(self) -> None:
        """Forget the issued fences, because the transaction begins again before anything was done in it."""
        self._issued.clear()

    def check(self) -> None:
        super().check()
        # Raise before the rows are locked: until then, other processes are not excluded.
        _ = self.fences

    def raise_fence(self, name: str, number: int) -> bool:
        """Return False: the row itself issues the numbers, so none has to be raised."""
        return False

    def _downgrade(self) -> Commands[None]:
        return Grant._downgrade(self)

    def _join(self, first: Grant) -> None:
        self._issued.update(first.fences)


@stamps_of.register
def _(grant: RowGrant) -> list[Stamp]:
    return grant.stamps
