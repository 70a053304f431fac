"""Lock services that turn a write into a read as people write it: each has one bug."""

from __future__ import annotations

from dataclasses import replace

from distlock.backends.base import READ, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Owner
from distlock.backends.memory.service import MemoryService
from tests.testing.planted import planted


@planted
class ADowngradeIsAReleaseAndARead(MemoryService):
    """In two steps: a writer that waits comes between."""

    def downgrade(self, request: LockRequest) -> bool:
        owner = self._current(request.key).owner(request.token)
        held = self.release(request)
        if held and owner is not None:
            self.request(replace(request, mode=READ), owner.entry.backend)
        return held


@planted
class ADowngradeLetsNobodyIn(MemoryService):
    """It tells nobody: the readers in front wait until it is released."""

    def downgrade(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        waiting, record.queue = record.queue, []
        held = super().downgrade(request)
        self.records[request.key] = record
        record.queue = waiting
        for entry in waiting:
            entry.backend = MemoryBackend("memory://nobody")
        return held


@planted
class ADowngradeDoesNothing(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        return self._current(request.key).owner(request.token) is not None


@planted
class ADowngradeCantBeRepeated(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        owner = self._current(request.key).owner(request.token)
        return (
            super().downgrade(request)
            and owner is not None
            and bool(owner.entry.request.mode != READ)
            and self._once(owner)
        )

    def _once(self, owner: Owner) -> bool:
        owner.entry.request = replace(owner.entry.request, mode=READ)
        return True


@planted
class AnybodyDowngrades(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        owners = self._current(request.key).owners
        return super().downgrade(owners[0].entry.request if owners else request)


@planted
class ADowngradeKeepsItsNumber(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        owner = self._current(request.key).owner(request.token)
        number = 0 if owner is None else owner.number
        held = super().downgrade(request)
        if owner is not None:
            owner.number = number
        return held
