"""Lock services as people write them: each has one bug. The kit must find every one."""

from __future__ import annotations

import math
import os
import weakref
from typing import Any

from distlock.backends.base import Ask, Capabilities, Held, Queued
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Entry, Owner, Record
from distlock.backends.memory.service import WINDOW, MemoryService
from distlock.errors import BackendUnavailable
from tests.testing.planted import planted


@planted
class EverybodyHolds(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        super().request(ask, backend)
        self.last_number += 1
        return Held(self.last_number, ask.ttl)


@planted
class AnybodyReleases(MemoryService):
    """DEL without comparing the owner."""

    def release(self, ask: Ask) -> bool:
        owners = self._current(ask.key).owners
        return super().release(owners[0].entry.ask if owners else ask)


@planted
class AnybodyRenews(MemoryService):
    def renew(self, ask: Ask) -> bool:
        return bool(self._current(ask.key).owners)


@planted
class NewcomersBarge(MemoryService):
    """The lock is set free, and the next one to ask has it."""

    def _hand_over(self, record: Record) -> None:
        for entry in record.queue if not record.owners else []:
            entry.backend.hint(entry.ask.key)

    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        record = self._current(ask.key)
        if not record.owners:
            record.queue = [entry for entry in record.queue if entry.ask.token != ask.token]
            self._own(record, Entry(ask, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return super().request(ask, backend)


@planted
class LastComeFirstServed(MemoryService):
    def _hand_over(self, record: Record) -> None:
        if not record.owners:
            record.queue.reverse()
        super()._hand_over(record)


@planted
class NobodyIsHinted(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        entry.backend = MemoryBackend("memory://nobody")
        return owner


@planted
class EveryPollQueues(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        if isinstance(answer, Queued):
            self.records[ask.key].queue.append(Entry(ask, backend, self.now()))
        return answer


@planted
class TryingQueues(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        record = self._current(ask.key)
        if not ask.wait and record.owners:
            record.queue.append(Entry(ask, backend, self.now()))
        return super().request(ask, backend)


@planted
class NoCancel(MemoryService):
    def cancel(self, ask: Ask) -> bool:
        return False


@planted
class CancelGivesUpTheHold(MemoryService):
    def cancel(self, ask: Ask) -> bool:
        held = super().cancel(ask)
        if held:
            self.release(ask)
        return False


@planted
class EqualFences(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        owner.number = 1
        return owner


@planted
class FencesForgetTheBlock(MemoryService):
    """INCR, while the holder numbers its own grants from there."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        self.last_number = owner.number
        return owner


@planted
class EveryPollHasANewFence(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        if isinstance(answer, Held):
            self.last_number += 1
            return Held(self.last_number, answer.ttl)
        return answer


@planted
class FloorsAreForgotten(MemoryService):
    """The hold is lifted, and the counter is not."""

    def raise_floor(self, ask: Ask, number: int) -> Any:
        counter = self.last_number
        answer = super().raise_floor(ask, number)
        self.last_number = counter
        return answer


@planted
class AnybodyRaisesFloors(MemoryService):
    def raise_floor(self, ask: Ask, number: int) -> Any:
        owners = self._current(ask.key).owners
        return super().raise_floor(owners[0].entry.ask if owners else ask, number)


@planted
class EveryRaiseIsANewFence(MemoryService):
    def raise_floor(self, ask: Ask, number: int) -> Any:
        return super().raise_floor(ask, max(number, self.last_number))


@planted
class NoExpiry(MemoryService):
    """SETNX without a lifetime."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, 1e9, acknowledged)


@planted
class RenewalDoesNothing(MemoryService):
    def renew(self, ask: Ask) -> bool:
        return self._current(ask.key).owner(ask.token) is not None


@planted
class HandOverIsWorthALease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, entry.ask.ttl if ttl == WINDOW else ttl, acknowledged)


@planted
class AnybodyAcknowledges(MemoryService):
    def acknowledge(self, ask: Ask, number: int) -> bool:
        return any(owner.number == number for owner in self._current(ask.key).owners)


@planted
class AcknowledgementsGrant(MemoryService):
    """A request, by another name."""

    def acknowledge(self, ask: Ask, number: int) -> bool:
        return isinstance(self.request(ask, MemoryBackend("memory://nobody")), Held)


@planted
class AcknowledgementsForgetTheNumber(MemoryService):
    def acknowledge(self, ask: Ask, number: int) -> bool:
        return self.renew(ask)


@planted
class AcknowledgementDoesNothing(MemoryService):
    def acknowledge(self, ask: Ask, number: int) -> bool:
        owner = self._current(ask.key).owner(ask.token)
        return owner is not None and owner.number == number


class PushesNameAnotherHold(MemoryBackend):
    def handed(self, key: str, token: str, number: int, sent: float) -> None:
        super().handed(key, token, number + 1, sent)


class NamesFold(MemoryBackend):
    """As a database's collation does: letter case and spaces at the end don't count."""

    def request(self, ask: Ask, deadline: float = math.inf) -> Any:
        return super().request(Ask(ask.key.rstrip().lower(), ask.token, ask.ttl, ask.span, ask.wait))


class ReleaseTwicePopsTwice(MemoryBackend):
    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        super().release(ask)
        return True


class DeclaresTooLittle(MemoryBackend):
    capabilities = Capabilities(fence=True, read=True, permits=True)


class CloseKeepsADescriptor(MemoryBackend):
    def request(self, ask: Ask, deadline: float = math.inf) -> Any:
        weakref.finalize(self, os.close, os.open(os.devnull, os.O_RDONLY))
        return super().request(ask)


@planted
class CloseKeepsAHandOver(MemoryService):
    """What came to the backend while it left is acknowledged by nobody, and given on by nobody."""

    def leave(self, backend: MemoryBackend) -> None:
        for record in self.records.values():
            record.queue = [entry for entry in record.queue if entry.backend is not backend]


class CloseKeepsTheQueue(MemoryBackend):
    def close(self) -> None: ...


class ClosedForEver(MemoryBackend):
    closed = False

    def request(self, ask: Ask, deadline: float = math.inf) -> Any:
        if self.closed:
            raise BackendUnavailable("It was closed.")
        return super().request(ask)

    def close(self) -> None:
        super().close()
        self.closed = True


class ClosingTwiceFails(MemoryBackend):
    def close(self) -> None:
        super().close()
        del self.service


class ClosingConnects(MemoryBackend):
    """As a close does that says goodbye on a connection which it opens for that."""

    def close(self) -> None:
        super().close()
        weakref.finalize(self, os.close, os.open(os.devnull, os.O_RDONLY))
