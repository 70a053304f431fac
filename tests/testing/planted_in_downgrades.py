"""Lock services that turn a write into a read as people write it: each has one bug."""

from __future__ import annotations

from dataclasses import replace

from distlock.backends.base import READ, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import MemoryHold, MemoryService
from tests.testing.planted import planted


@planted
class ADowngradeIsAReleaseAndARead(MemoryService):
    """In two steps: a writer that waits comes between."""

    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        held = self.release(request)
        if held and hold is not None:
            self.request(replace(request, mode=READ), hold.entry.backend)
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
        return self._current(request.key).hold(request.token) is not None


@planted
class ADowngradeCantBeRepeated(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        return (
            super().downgrade(request)
            and hold is not None
            and bool(hold.entry.request.mode != READ)
            and self._once(hold)
        )

    def _once(self, hold: MemoryHold) -> bool:
        hold.entry.request = replace(hold.entry.request, mode=READ)
        return True


@planted
class AnybodyDowngrades(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        holds = self._current(request.key).holds
        return super().downgrade(holds[0].entry.request if holds else request)


@planted
class ADowngradeKeepsItsNumber(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        number = 0 if hold is None else hold.number
        held = super().downgrade(request)
        if hold is not None:
            hold.number = number
        return held
