"""What the service keeps of one key: who has it, until when, and who waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode

if TYPE_CHECKING:
    from distlock.backends.memory.backend import MemoryBackend


@dataclass
class Entry:
    """An ask, as it was seen last."""

    request: LockRequest
    backend: MemoryBackend
    seen: float


@dataclass
class Owner:
    """An ask that was granted."""

    entry: Entry
    #: Another than its ask's, once it was downgraded.
    mode: Mode
    number: int
    ends: float
    acknowledged: bool
    #: It is wanted back.
    release_requested: bool = False

    def tell(self) -> None:
        """Tell its client that it is wanted back, if it is: by a message, and with each renewal."""
        if self.release_requested:
            request = self.entry.request
            self.entry.backend.release_requested(request.key, request.token)


@dataclass
class Record:
    """One key."""

    owners: list[Owner] = field(default_factory=list)
    queue: list[Entry] = field(default_factory=list)

    def owner(self, token: str) -> Owner | None:
        return next((owner for owner in self.owners if owner.entry.request.token == token), None)

    def waiting(self, token: str) -> Entry | None:
        return next((entry for entry in self.queue if entry.request.token == token), None)

    def has_room(self, request: LockRequest) -> bool:
        """Whether *request* may have the key beside those that have it."""
        if request.mode == EXCLUSIVE:
            return not self.owners
        if request.mode == READ:
            return all(owner.mode == READ for owner in self.owners)
        return self.out() + request.permits <= request.limit

    def out(self) -> int:
        """How many permits are out."""
        return sum(owner.entry.request.permits for owner in self.owners if owner.mode == PERMIT)

    def other_limit(self, request: LockRequest) -> int:
        """Another limit than that of *request* which somebody here names; 0: nobody does."""
        if request.mode != PERMIT:
            return 0
        limits = [entry.request.limit for entry in (*(owner.entry for owner in self.owners), *self.queue)]
        return next((limit for limit in limits if limit != request.limit), 0)
