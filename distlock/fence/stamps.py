"""Fence rows: one for each name, in the user's own database. They keep promise G1 of CONTRIBUTING.md.

A fenced transaction locks the row before it reads what the name protects, and keeps it locked until COMMIT.
So the fenced transactions of one name run one after the other, each sees the ones before it, and one whose
fence is older than the row's is overtaken. See
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from distlock.errors import ConfigurationError, LockLost
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import JointGrant
from distlock.names import encode
from distlock.terms import PERMIT, READ

TABLE = "distlock_fence"


def key_of(namespace: str, name: str) -> str:
    """Return the row's key: a digest, so that no collation, padding or length limit can equate two names."""
    return hashlib.sha256(f"{namespace}:{name}".encode()).hexdigest()


def floor_of(namespace: str) -> list[object]:
    """Return key, namespace and name of the floor's row. Its name is empty, which is no lock's name."""
    return [key_of(namespace, ""), namespace, ""]


@dataclass(frozen=True, slots=True)
class Stamp:
    """The values that one grant writes into the row of one name."""

    namespace: str
    name: str
    fence: Fence
    #: A text that no other grant has, for the case that a lock service lost its data and repeats a fence.
    holder_id: str

    @property
    def row(self) -> str:
        """The row's key."""
        return key_of(self.namespace, self.name)

    @property
    def values(self) -> list[object]:
        """Key, namespace and name of the row, as they are inserted."""
        return [self.row, self.namespace, encode(self.name)]

    def next(self, stored: Fence, holder_id: str) -> Fence:
        """Return the fence to write into the row, in which the fence *stored* and *holder_id* are.

        Raises `OldEpoch` if the row's epoch is later; else `Overtaken` if the row's fence is larger, or is
        the same and of another holder.
        """
        if self.fence > stored or (self.fence == stored and self.holder_id == holder_id):
            return self.fence
        if self.fence.epoch < stored.epoch:
            raise OldEpoch(self, stored)
        raise Overtaken(self, stored)

    def kept_out(self, seconds: float) -> str:
        """Return the message about a row that was still locked after *seconds*."""
        return (
            f"The lock {self.name!r} was granted, but an earlier holder's transaction was still open in the "
            f"database after {seconds:.3g} seconds. Try again later."
        )


@dataclass(frozen=True, slots=True)
class ReadStamp(Stamp):
    """The values that one reader compares with the row of one name."""

    def next(self, stored: Fence, holder_id: str) -> Fence:
        """Return the reader's fence. Raise as `Stamp.next` does if a later writer has written the row."""
        if self.fence.epoch < stored.epoch:
            raise OldEpoch(self, stored)
        if self.fence < stored:
            raise Overtaken(self, stored)
        return self.fence


class Overtaken(LockLost):
    """A later grant of the name has written its fence, so the earlier one's transaction is not committed."""

    def __init__(self, stamp: Stamp, stored: Fence) -> None:
        mine = stamp.fence
        super().__init__(
            f"The lock {stamp.name!r} was overtaken: its fence is {mine.epoch}:{mine.number}, and the "
            f"database has seen {stored.epoch}:{stored.number}. Nothing is committed. Try again."
        )


class RolledBack(LockLost):
    """The database has rolled back the transaction that passed the fence; later statements run in another."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(map(repr, names))
        super().__init__(
            f"The database has rolled back the transaction under the lock {shown} by itself, because of a "
            "deadlock, and let the row of its fence go. Nothing is committed. Try again."
        )


class OldEpoch(LockLost):
    """The row has a later epoch: ``FENCE_EPOCH`` was raised in another process, or lowered in this one."""

    def __init__(self, stamp: Stamp, stored: Fence) -> None:
        super().__init__(
            f"DISTLOCK's FENCE_EPOCH (epoch= of connect) is {stamp.fence.epoch} here, and the database has "
            f"seen the epoch {stored.epoch} for the lock {stamp.name!r}: nothing of this process is "
            "committed there any more. If a deploy raises it, finish it. If one lowered it, write "
            f'"FENCE_EPOCH": {stored.epoch}, or more.'
        )


@functools.singledispatch
def stamps_of(grant: Grant) -> list[Stamp]:
    """Return the stamps of *grant*, in the order in which all grants lock rows, which prevents deadlocks.

    Raises `ConfigurationError` for a semaphore, which several callers hold at once.
    """
    if grant.mode == PERMIT:
        raise ConfigurationError(
            f"The semaphore {', '.join(map(repr, grant.names))} can't be fenced: several have it at once, "
            "in no order. Fence a lock, taken beside it."
        )
    namespace, fences = grant.namespace, grant.fences
    stamp = ReadStamp if grant.mode == READ else Stamp
    return [
        stamp(namespace, name, fences[name], holder_id)
        for name, holder_id in sorted(grant.holder_ids.items())
    ]


@stamps_of.register
def _of_joint(grant: JointGrant) -> list[Stamp]:
    # Locks of two lock services may have the same prefix and name, and so the same row. The first lock of
    # the grant stamps it.
    stamps: dict[tuple[str, str], Stamp] = {}
    for one in grant.grants:
        for stamp in stamps_of(one):
            stamps.setdefault((stamp.namespace, stamp.name), stamp)
    return sorted(stamps.values(), key=attrgetter("namespace", "name"))
