"""Lock services that have readers and permits as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, READ, Ask, Held
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Entry, Owner, Record
from distlock.backends.memory.service import WINDOW, MemoryService
from tests.testing.planted_in_service import Planted, planted


def misjudging(record: type[Record]) -> type[Planted]:
    """A service that has room where *record* says so."""

    class Misjudging(MemoryService):
        def _current(self, key: str) -> Record:
            self.records.setdefault(key, record())
            return super()._current(key)

    words = {"service_class": Misjudging, "__module__": record.__module__}
    return type(record.__name__, (Planted,), words)


def owned(record: Record, mode: str) -> list[Owner]:
    return [owner for owner in record.owners if owner.mode == mode]


# -- readers -------------------------------------------------------------------------------------


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


# -- downgrades ----------------------------------------------------------------------------------


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


# -- permits -------------------------------------------------------------------------------------


@misjudging
class HoldsAreCounted(Record):
    """Not the permits that they have."""

    def has_room(self, ask: Ask) -> bool:
        return len(self.owners) < ask.limit if ask.mode == PERMIT else super().has_room(ask)


@misjudging
class NobodyHearsOfOtherLimits(Record):
    def other_limit(self, ask: Ask) -> int:
        return 0


@misjudging
class TheFirstLimitIsForAll(Record):
    def has_room(self, ask: Ask) -> bool:
        first = [owner.entry.ask.limit for owner in owned(self, PERMIT)]
        return super().has_room(replace(ask, limit=first[0]) if first else ask)


@planted
class SmallAsksPassLargeOnes(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        record = self._current(ask.key)
        if ask.mode == PERMIT and record.owner(ask.token) is None and record.has_room(ask):
            record.queue = [entry for entry in record.queue if entry.ask.token != ask.token]
            self._own(record, Entry(ask, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return super().request(ask, backend)


@planted
class AFreedPermitWakesEverybody(MemoryService):
    def release(self, ask: Ask) -> bool:
        for entry in self._current(ask.key).queue:
            entry.backend.hint(ask.key)
        return super().release(ask)


@planted
class OneEntersForSeveralPermits(MemoryService):
    def _hand_over(self, record: Record) -> None:
        if not record.owners:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_over(record)
            record.queue += behind


@planted
class EveryPollTakesAPermit(MemoryService):
    """DECR without a look at who asks."""

    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        record = self._current(ask.key)
        if isinstance(answer, Held) and ask.mode == PERMIT and len(record.owners) < ask.limit:
            other = replace(ask, token=f"{ask.token}_again_{len(record.owners)}")
            if record.owners[-1].entry.ask.token == ask.token:
                self._own(record, Entry(other, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return answer


class Counter(Record):
    too_many = 0

    def has_room(self, ask: Ask) -> bool:
        return super().has_room(replace(ask, limit=ask.limit + self.too_many))


class Counted(MemoryService):
    """Permits as a counter: more of them than the limit says, once too many came back."""

    def _current(self, key: str) -> Record:
        self.records.setdefault(key, Counter())
        return super()._current(key)

    def release(self, ask: Ask) -> bool:
        held = super().release(ask)
        record = self.records.get(ask.key)
        if isinstance(record, Counter) and not held and self.comes_back_twice(ask):
            record.too_many += 1
        return held

    def comes_back_twice(self, ask: Ask) -> bool:
        raise NotImplementedError


@planted
class APermitComesBackTwiceAfterItsLease(Counted):
    """Once by its lease, and once by its late holder: INCR without a look."""

    def comes_back_twice(self, ask: Ask) -> bool:
        return ask.ttl < 1


@planted
class ASecondReleaseGivesAPermit(Counted):
    def comes_back_twice(self, ask: Ask) -> bool:
        return ask.ttl > 1


@planted
class PermitsNeverComeBack(MemoryService):
    """A crashed holder leaks its permit for ever."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, 1e9 if entry.ask.mode == PERMIT else ttl, acknowledged)


@planted
class OnePermitOfSeveralComesBack(MemoryService):
    def _current(self, key: str) -> Record:
        record = self.records.setdefault(key, Record())
        for owner in owned(record, PERMIT):
            if self.now() >= owner.ends and owner.entry.ask.permits > 1:
                owner.entry.ask = replace(owner.entry.ask, permits=owner.entry.ask.permits - 1)
                owner.ends = self.now() + 1e9
        return super()._current(key)


@planted
class PermitsHaveOneLease(MemoryService):
    """Each renewal is for all of them."""

    def renew(self, ask: Ask) -> bool:
        held = super().renew(ask)
        for owner in owned(self._current(ask.key), PERMIT) if held else []:
            owner.ends = self.now() + ask.ttl
        return held


@planted
class AHandedPermitHasALease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        mine = entry.ask.ttl if entry.ask.mode == PERMIT else ttl
        return super()._own(record, entry, now, mine, acknowledged)
