"""Lock services that turn a write into a read as people write it: each has one bug."""

from __future__ import annotations

from dataclasses import replace

from distlock.backends.base import READ, Ask
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Owner
from distlock.backends.memory.service import MemoryService
from tests.testing.planted import planted


@planted
class ADowngradeIsAReleaseAndARead(MemoryService):
    """In two steps: a writer that waits comes between."""

    def downgrade(self, ask: Ask) -> bool:
        owner = self._current(ask.key).owner(ask.token)
        held = self.release(ask)
        if held and owner is not None:
            self.request(replace(ask, mode=READ), owner.entry.backend)
        return held


@planted
class ADowngradeLetsNobodyIn(MemoryService):
    """It tells nobody: the readers in front wait until it is released."""

    def downgrade(self, ask: Ask) -> bool:
        record = self._current(ask.key)
        waiting, record.queue = record.queue, []
        held = super().downgrade(ask)
        self.records[ask.key] = record
        record.queue = waiting
        for entry in waiting:
            entry.backend = MemoryBackend("memory://nobody")
        return held


@planted
class ADowngradeDoesNothing(MemoryService):
    def downgrade(self, ask: Ask) -> bool:
        return self._current(ask.key).owner(ask.token) is not None


@planted
class ADowngradeCantBeRepeated(MemoryService):
    def downgrade(self, ask: Ask) -> bool:
        owner = self._current(ask.key).owner(ask.token)
        return (
            super().downgrade(ask)
            and owner is not None
            and bool(owner.entry.ask.mode != READ)
            and self._once(owner)
        )

    def _once(self, owner: Owner) -> bool:
        owner.entry.ask = replace(owner.entry.ask, mode=READ)
        return True


@planted
class AnybodyDowngrades(MemoryService):
    def downgrade(self, ask: Ask) -> bool:
        owners = self._current(ask.key).owners
        return super().downgrade(owners[0].entry.ask if owners else ask)


@planted
class ADowngradeKeepsItsNumber(MemoryService):
    def downgrade(self, ask: Ask) -> bool:
        owner = self._current(ask.key).owner(ask.token)
        number = 0 if owner is None else owner.number
        held = super().downgrade(ask)
        if owner is not None:
            owner.number = number
        return held
