"""Lock services that have readers as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, READ, Ask, Held
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Entry, Owner, Record
from distlock.backends.memory.service import WINDOW, MemoryService
from tests.testing.planted import misjudging, owned, planted


@misjudging
class ReadersTakeTurns(Record):
    """A reader is a writer, by another name."""

    def has_room(self, ask: Ask) -> bool:
        return super().has_room(ask) and not (ask.mode == READ and self.owners)


@misjudging
class ReadersDisregardWriters(Record):
    def has_room(self, ask: Ask) -> bool:
        return ask.mode == READ or super().has_room(ask)


@misjudging
class WritersDisregardReaders(Record):
    def has_room(self, ask: Ask) -> bool:
        return len(owned(self, READ)) == len(self.owners) if ask.mode != PERMIT else super().has_room(ask)


@planted
class ReadersPassWaitingWriters(MemoryService):
    """As Redisson's do: nothing stops new readers, so writers starve."""

    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        record = self._current(ask.key)
        if ask.mode == READ and record.owner(ask.token) is None and owned(record, READ):
            record.queue = [entry for entry in record.queue if entry.ask.token != ask.token]
            self._own(record, Entry(ask, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return super().request(ask, backend)


@planted
class AllWaitingReadersEnter(MemoryService):
    """Those behind the next writer, too."""

    def _hand_over(self, record: Record) -> None:
        super()._hand_over(record)
        if owned(record, READ):
            for entry in [entry for entry in record.queue if entry.ask.mode == READ]:
                record.queue.remove(entry)
                self._own(record, entry, self.now(), WINDOW, acknowledged=False)


@planted
class OnlyTheFirstOfARunEnters(MemoryService):
    def _hand_over(self, record: Record) -> None:
        if not record.owners:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_over(record)
            record.queue += behind


@planted
class ALongRunIsCutOff(MemoryService):
    """So many a script, and nobody lets in the others."""

    def _hand_over(self, record: Record) -> None:
        if len(owned(record, READ)) < 16:
            behind, record.queue = record.queue[16:], record.queue[:16]
            super()._hand_over(record)
            record.queue += behind


@planted
class TheFirstReaderOutFreesTheKey(MemoryService):
    """One key for all of them, and each deletes it."""

    def release(self, ask: Ask) -> bool:
        record = self._current(ask.key)
        if record.owner(ask.token) is not None:
            record.owners = [owner for owner in record.owners if owner.entry.ask.token == ask.token]
        return super().release(ask)


@planted
class TheLastReaderOutTellsNobody(MemoryService):
    def release(self, ask: Ask) -> bool:
        record = self._current(ask.key)
        if owned(record, READ) == record.owners and len(record.owners) == 1:
            for entry in record.queue:
                entry.backend = MemoryBackend("memory://nobody")
        return super().release(ask)


@planted
class OneOfARunIsHinted(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        if owned(record, READ):
            entry.backend = MemoryBackend("memory://nobody")
        return super()._own(record, entry, now, ttl, acknowledged)


@planted
class NobodyIsEverFollowed(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        return replace(answer, followed=False) if isinstance(answer, Held) else answer


@planted
class OnceFollowedAlwaysFollowed(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        if isinstance(answer, Held) and ask.mode == READ:
            self.__dict__.setdefault("followed", set())
            self.__dict__["followed"] |= {ask.token} if answer.followed else set()
            return replace(answer, followed=ask.token in self.__dict__["followed"])
        return answer


@planted
class ACancelWakesNobody(MemoryService):
    def cancel(self, ask: Ask) -> bool:
        record = self._current(ask.key)
        behind = [entry for entry in record.queue if entry.ask.token != ask.token]
        record.queue = []
        held = super().cancel(ask)
        self.records[ask.key] = record
        record.queue = behind
        return held


@planted
class AHungReaderTakesTheOthersAlong(MemoryService):
    """One lease for all: that of the reader that came first."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        for other in owned(record, READ):
            other.ends = min(other.ends, owner.ends, record.owners[0].ends)
        return owner

    def renew(self, ask: Ask) -> bool:
        record = self._current(ask.key)
        ends = [owner.ends for owner in record.owners]
        held = super().renew(ask)
        for owner, before in zip(record.owners, ends, strict=True):
            owner.ends = before if owner.mode == READ else owner.ends
        return held


@planted
class ARenewalIsForAllReaders(MemoryService):
    """As for a hash with one expiry: dead readers stay while others renew it."""

    def renew(self, ask: Ask) -> bool:
        held = super().renew(ask)
        for owner in owned(self._current(ask.key), READ) if held else []:
            owner.ends = self.now() + ask.ttl
        return held


@planted
class ReadersHaveNoLease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, 1e9 if entry.ask.mode == READ else ttl, acknowledged)


@planted
class AHandedReaderHasALease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        mine = entry.ask.ttl if entry.ask.mode == READ else ttl
        return super()._own(record, entry, now, mine, acknowledged)


@planted
class ReadersHaveTheNumberOfTheBlock(MemoryService):
    """The first of the last writer's, whose grants have gone on from there."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        before = self.last_number
        owner = super()._own(record, entry, now, ttl, acknowledged)
        if owner.mode == READ:
            owner.number = self.__dict__.get("first", owner.number)
        else:
            self.__dict__["first"] = before + 1
        return owner


@planted
class WritersShareTheNumberOfReaders(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        if owner.mode != READ and owner.number > 1:
            owner.number -= 1
        return owner
