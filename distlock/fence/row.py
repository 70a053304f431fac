"""The fence's row: one for each name, in the user's own database. G1 lives here.

A fenced transaction locks the row before it reads what the name protects, and keeps it locked until COMMIT.
So those of one name run one after the other, each sees the ones before it, and one whose fence is older than
the row's is overtaken. See
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from distlock.errors import ConfigurationError, LockLost
from distlock.grant import Fence, Grant
from distlock.joint_grant import JointGrant
from distlock.modes import PERMIT, READ
from distlock.names import encode

TABLE = "distlock_fence"


def key_of(domain: str, name: str) -> str:
    """The row's key. A digest: no collation, padding or length makes one row of two names."""
    return hashlib.sha256(f"{domain}:{name}".encode()).hexdigest()


def floor_of(domain: str) -> list[object]:
    """Key, domain and name of the row from which new rows of *domain* start. No lock has an empty name."""
    return [key_of(domain, ""), domain, ""]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What one grant writes into the row of one name."""

    domain: str
    name: str
    fence: Fence
    #: Tells this grant from any other with the same fence, which a lock service that lost its data may make.
    seal: str

    @property
    def row(self) -> str:
        """The row's key."""
        return key_of(self.domain, self.name)

    @property
    def values(self) -> list[object]:
        """Key, domain and name of a row that is made for it."""
        return [self.row, self.domain, encode(self.name)]

    def next(self, stored: Fence, seal: str) -> Fence:
        """What to write into the row, which has *stored* and *seal*.

        Raises `Overtaken` if a later grant did, `OldEra` if its process has another setting.
        """
        if self.fence > stored or (self.fence == stored and self.seal == seal):
            return self.fence
        if self.fence.era < stored.era:
            raise OldEra(self, stored)
        raise Overtaken(self, stored)

    def kept_out(self, seconds: float) -> str:
        """What to say if the row was still locked after *seconds*."""
        return (
            f"The lock {self.name!r} was granted, but an earlier holder's transaction was still open in the "
            f"database after {seconds:.3g} seconds. Try again later."
        )


@dataclass(frozen=True, slots=True)
class ReadStamp(Stamp):
    """What one reader looks for in the row of one name."""

    def next(self, stored: Fence, seal: str) -> Fence:
        """Its fence, unless a later writer was there. Readers have the number of the writer before them."""
        if self.fence.era < stored.era:
            raise OldEra(self, stored)
        if self.fence < stored:
            raise Overtaken(self, stored)
        return self.fence


class Overtaken(LockLost):
    """A later grant of the name has written its fence: what comes from this one is not committed."""

    def __init__(self, stamp: Stamp, stored: Fence) -> None:
        mine = stamp.fence
        super().__init__(
            f"The lock {stamp.name!r} was overtaken: its fence is {mine.era}:{mine.number}, and the database "
            f"has seen {stored.era}:{stored.number}. Nothing is committed. Try again."
        )


class RolledBack(LockLost):
    """The database has ended the transaction that had passed: what comes after it is another one."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(map(repr, names))
        super().__init__(
            f"The database has rolled back the transaction under the lock {shown} by itself, because of a "
            "deadlock, and let the row of its fence go. Nothing is committed. Try again."
        )


class OldEra(LockLost):
    """The row is of a later era: its ``ERA`` was raised in another process, or lowered in this one."""

    def __init__(self, stamp: Stamp, stored: Fence) -> None:
        super().__init__(
            f"DISTLOCK's ERA (era= of connect) is {stamp.fence.era} here, and the database has seen the era "
            f"{stored.era} for the lock {stamp.name!r}: nothing of this process is committed there any more. "
            f'If a deploy raises it, finish it. If one lowered it, write "ERA": {stored.era}, or more.'
        )


@functools.singledispatch
def stamps_of(grant: Grant) -> list[Stamp]:
    """What *grant* writes or looks for, in the order in which everybody locks: nobody waits in a ring.

    Raises `ConfigurationError` for a semaphore, of which several are inside, in no order.
    """
    if grant.mode == PERMIT:
        raise ConfigurationError(
            f"The semaphore {', '.join(map(repr, grant.names))} can't be fenced: several have it at once, "
            "in no order. Fence a lock, taken beside it."
        )
    domain, fences = grant.domain, grant.fences
    stamp = ReadStamp if grant.mode == READ else Stamp
    return [stamp(domain, name, fences[name], seal) for name, seal in sorted(grant.seals.items())]


@stamps_of.register
def _of_joint(grant: JointGrant) -> list[Stamp]:
    stamps = [stamp for one in grant.grants for stamp in stamps_of(one)]
    return sorted(stamps, key=attrgetter("domain", "name"))
