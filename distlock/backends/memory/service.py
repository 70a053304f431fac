"""The state of a lock service that lives in memory.

It has leases, a queue and acknowledged hand-offs like Redis, so that tests can run the engine on it, with a
clock that the test controls. Its latches are the model for the latches of other lock services.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from distlock import clock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, Acquired, Busy, LockRequest, Mode, Queued
from distlock.backends.inspectable import MOST_SHOWN, KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchRecord, LatchState

#: The type of a function that is called with the key of a latch that was opened or deleted.
Notify = Callable[[str], None]

#: Seconds for which a hold lasts that was handed off and not acknowledged.
WINDOW = 0.5
#: Seconds between polls. A waiter that has not polled for three times as long counts as dead.
POLL = 1.0


class Contender(Protocol):
    """A backend as the service sees it: it has a name, and can be notified."""

    process: str

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None: ...
    def lost(self, key: str, token: str) -> None: ...
    def release_requested(self, key: str, token: str) -> None: ...


@dataclass
class RequestEntry:
    """A request of one backend. *seen*: the time of its latest poll."""

    request: LockRequest
    backend: Contender
    seen: float


@dataclass
class MemoryHold:
    """A request that was granted."""

    entry: RequestEntry
    #: `READ` after a downgrade, even before the engine changes the request's mode.
    mode: Mode
    number: int
    ends: float
    acknowledged: bool
    release_requested: bool = False

    def notify_release_requested(self) -> None:
        """Notify the backend if a release was requested. Called at that moment, and at each renewal."""
        if self.release_requested:
            request = self.entry.request
            self.entry.backend.release_requested(request.key, request.token)


@dataclass
class KeyRecord:
    """The holds and the queue of one key."""

    holds: list[MemoryHold] = field(default_factory=list)
    queue: list[RequestEntry] = field(default_factory=list)

    def is_empty(self) -> bool:
        return not (self.holds or self.queue)

    def hold(self, token: str) -> MemoryHold | None:
        return next((hold for hold in self.holds if hold.entry.request.token == token), None)

    def waiting(self, token: str) -> RequestEntry | None:
        return next((entry for entry in self.queue if entry.request.token == token), None)

    def has_room(self, request: LockRequest) -> bool:
        """Return whether *request* is compatible with the holds."""
        if request.mode == EXCLUSIVE:
            return not self.holds
        if request.mode == READ:
            return all(hold.mode == READ for hold in self.holds)
        return self.out() + request.permits <= request.limit

    def out(self) -> int:
        """Return how many permits are held."""
        return sum(hold.entry.request.permits for hold in self.holds if hold.mode == PERMIT)

    def other_limit(self, request: LockRequest) -> int:
        """Return a limit of another request that differs from *request*'s limit; 0 if there is none."""
        if request.mode != PERMIT:
            return 0
        limits = [entry.request.limit for entry in (*(hold.entry for hold in self.holds), *self.queue)]
        return next((limit for limit in limits if limit != request.limit), 0)


class LatchTable:
    """The latches of all clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mutex = threading.RLock()
        #: Each latch, and the time when it expires, by key.
        self._records: dict[str, tuple[LatchRecord, float]] = {}
        #: The callbacks of watchers, by key and client.
        self.watched: dict[str, dict[object, Notify]] = {}

    def make(self, key: str, total: int, ttl: float, maker: str) -> LatchState:
        with self._mutex:
            # Remove all latches that have expired.
            for other in list(self._records):
                self._record(other)
            if self._record(key) is None:
                self._records[key] = LatchRecord(maker, total, total, ttl), self._now() + ttl
            return self._state(key)

    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        with self._mutex:
            record = self._record(key)
            if record is None or not record.is_life(life):
                return None
            if record.count(by, part):
                self._records[key] = record, self._now() + record.ttl
                if not record.left:
                    self._tell(key)
            return self._state(key)

    def delete(self, key: str, life: str = "") -> bool:
        with self._mutex:
            record = self._record(key)
            if record is None or not record.is_life(life):
                return False
            del self._records[key]
            self._tell(key)
            return True

    def look(self, key: str, who: object, notify: Notify | None) -> LatchState | None:
        with self._mutex:
            if self._record(key) is None:
                return None
            if notify is not None:
                self.watched.setdefault(key, {})[who] = notify
            return self._state(key)

    def forget(self, who: object) -> None:
        """Remove the watches of *who*."""
        with self._mutex:
            for notify in self.watched.values():
                notify.pop(who, None)

    def _tell(self, key: str) -> None:
        for notify in self.watched.pop(key, {}).values():
            notify(key)

    def _record(self, key: str) -> LatchRecord | None:
        record, ends = self._records.get(key, (None, 0.0))
        if record is not None and self._now() >= ends:
            del self._records[key]
            self.watched.pop(key, None)
            return None
        return record

    def _state(self, key: str) -> LatchState:
        record, ends = self._records[key]
        return record.state(ends - self._now())


@dataclass
class PublishedRows:
    """What one process has published."""

    host: str
    pid: int
    ends: float = 0.0
    rows: dict[str, StatusRow] = field(default_factory=dict)


class StatusTable:
    """The published status of all processes."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mutex = threading.RLock()
        self._by_process: dict[str, PublishedRows] = {}

    def publish(
        self, process: str, host: str, pid: int, rows: Sequence[StatusRow], gone: Sequence[str], life: float
    ) -> bool:
        """Publish *rows*, and withdraw the keys *gone*. Return False if *process* had no unexpired status."""
        with self._mutex:
            known = self._living(process)
            mine = known or PublishedRows(host, pid)
            mine.rows |= {row.key: row for row in rows}
            for key in gone:
                mine.rows.pop(key, None)
            mine.ends = self._now() + life
            self._by_process[process] = mine
            return known is not None

    def rows_below(self, before: str) -> list[SeenProcess]:
        with self._mutex:
            return [
                SeenProcess(process, one.host, one.pid, row)
                for process in list(self._by_process)
                if (one := self._living(process)) is not None
                for key, row in one.rows.items()
                if key.startswith(before)
            ]

    def seen(self, process: str, key: str) -> SeenProcess:
        """Return *process* with its published status of *key*."""
        with self._mutex:
            one = self._living(process)
            return SeenProcess(process, one.host, one.pid, one.rows.get(key)) if one else SeenProcess(process)

    def forget(self, process: str) -> None:
        self._by_process.pop(process, None)

    def clear(self) -> None:
        self._by_process.clear()

    def _living(self, process: str) -> PublishedRows | None:
        one = self._by_process.get(process)
        if one is not None and self._now() >= one.ends:
            del self._by_process[process]
            return None
        return one


class MemoryService:
    """The locks and latches of one service, behind one mutex."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self.now = now
        self.mutex = threading.RLock()
        self.records: dict[str, KeyRecord] = {}
        self.last_number = 0
        self.status = StatusTable(now)
        self.latches = LatchTable(now)

    def request(self, request: LockRequest, backend: Contender) -> Acquired | Queued | Busy:
        with self._record(request.key) as record:
            now = self.now()
            mine = record.waiting(request.token)
            if mine is not None:
                mine.seen = now
            hold = record.hold(request.token)
            if hold is None and not record.queue and record.has_room(request):
                hold = self._grant(
                    record, RequestEntry(request, backend, now), now, request.ttl, acknowledged=True
                )
            if hold is not None:
                if not hold.acknowledged:
                    hold.acknowledged = True
                    hold.ends = now + request.ttl
                followed = hold.mode == READ and bool(record.queue)
                return Acquired(hold.number, hold.ends - now, followed, record.other_limit(request))
            if not request.wait:
                return Busy()
            if mine is None:
                record.queue.append(RequestEntry(request, backend, now))
            # Poll again when a hold may end: at the end of a lease, or of the window of a hand-off that was
            # not acknowledged.
            ends = min((hold.ends for hold in record.holds), default=now)
            return Queued(min(POLL, max(0.0, ends - now) + 0.01))

    def cancel(self, request: LockRequest) -> bool:
        with self._record(request.key) as record:
            if record.hold(request.token) is not None:
                return True
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            # The request may have blocked waiters behind it that are compatible with the holds.
            self._hand_off(record)
            return False

    def renew(self, request: LockRequest) -> bool:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            if hold is not None:
                hold.ends = self.now() + request.ttl
                hold.notify_release_requested()
            return hold is not None

    def acknowledge(self, request: LockRequest, number: int) -> bool:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            ours = hold is not None and hold.number == number
            if hold is not None and ours:
                hold.acknowledged = True
                hold.ends = self.now() + request.ttl
            return ours

    def release(self, request: LockRequest) -> bool:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            if hold is not None:
                record.holds.remove(hold)
                self._hand_off(record)
            return hold is not None

    def downgrade(self, request: LockRequest) -> bool:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            if hold is not None and hold.mode != READ:
                hold.mode = READ
                hold.number = self.last_number
                self._hand_off(record)
            return hold is not None

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        with self._record(request.key) as record:
            hold = record.hold(request.token)
            if hold is None:
                return None
            if hold.number <= number:
                hold.number = self._numbered(hold.mode, request.span, above=number)
            hold.acknowledged = True
            hold.ends = self.now() + request.ttl
            return Acquired(hold.number, request.ttl)

    def locked(self, key: str) -> bool:
        with self._record(key) as record:
            return bool(record.holds)

    def inspect(self, key: str) -> KeyState:
        with self._record(key) as record:
            queue = [self.status.seen(entry.backend.process, key) for entry in record.queue[:MOST_SHOWN]]
            state = KeyState(queue=queue, waiting=len(record.queue))
            if record.holds:
                first, *others = record.holds
                state = KeyState(
                    self.status.seen(first.entry.backend.process, key),
                    first.number,
                    first.ends - self.now(),
                    queue,
                    len(record.queue),
                    mode=first.mode,
                    others=len(others),
                    beside=[
                        self.status.seen(hold.entry.backend.process, key) for hold in others[:MOST_SHOWN]
                    ],
                    out=record.out(),
                    limit=first.entry.request.limit if first.mode == PERMIT else 0,
                )
            return state

    def break_hold(self, key: str, number: int) -> bool:
        with self._record(key) as record:
            # Readers may share one number.
            broken = [hold for hold in record.holds if hold.number == number]
            if broken:
                record.holds = [hold for hold in record.holds if hold.number != number]
                self._hand_off(record)
        for hold in broken:
            hold.entry.backend.lost(key, hold.entry.request.token)
        return bool(broken)

    def request_release(self, key: str) -> bool:
        with self._record(key) as record:
            for hold in record.holds:
                hold.release_requested = True
                hold.notify_release_requested()
            return bool(record.holds)

    def leave(self, backend: Contender) -> None:
        """Remove a closed backend's queue entries, unacknowledged holds, status and watches of latches."""
        with self.mutex:
            self.status.forget(backend.process)
            self.latches.forget(backend.process)
            for record in self.records.values():
                record.queue = [entry for entry in record.queue if entry.backend is not backend]
                record.holds = [
                    hold for hold in record.holds if hold.entry.backend is not backend or hold.acknowledged
                ]
                self._hand_off(record)
            self.records = {key: record for key, record in self.records.items() if not record.is_empty()}

    @contextmanager
    def _record(self, key: str) -> Iterator[KeyRecord]:
        """Yield the current record of *key*, under the mutex. Forget it if it is empty afterwards."""
        with self.mutex:
            record = self._current(key)
            yield record
            if record.is_empty():
                self.records.pop(key, None)

    def _current(self, key: str) -> KeyRecord:
        """Return the record of *key*, after ending expired holds and handing the key off."""
        record = self.records.setdefault(key, KeyRecord())
        now = self.now()
        record.holds = [hold for hold in record.holds if now < hold.ends]
        self._hand_off(record)
        return record

    def _hand_off(self, record: KeyRecord) -> None:
        """Hand the key off to the first waiters of the queue that are compatible with the holds."""
        now = self.now()
        while (entry := self._first(record, now)) is not None and record.has_room(entry.request):
            # The waiters before this one are dead.
            del record.queue[: record.queue.index(entry) + 1]
            hold = self._grant(record, entry, now, WINDOW, acknowledged=False)
            entry.backend.handed_off(entry.request.key, entry.request.token, hold.number, entry.seen)

    def _first(self, record: KeyRecord, now: float) -> RequestEntry | None:
        """Return the first entry whose waiter lives, or None: then clear the queue if the key is free."""
        living = (entry for entry in record.queue if now - entry.seen <= 3 * POLL)
        first = next(living, None)
        if first is None and not record.holds:
            record.queue.clear()
        return first

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        number = self._numbered(entry.request.mode, entry.request.span)
        record.holds.append(MemoryHold(entry, entry.request.mode, number, now + ttl, acknowledged))
        return record.holds[-1]

    def _numbered(self, mode: Mode, span: int, above: int = 0) -> int:
        """Return the first number, above *above*, of a new block of *span* numbers.

        A reader gets no block: return the last number given out, after raising it above *above*.
        """
        if mode == READ:
            self.last_number = max(self.last_number, above + 1)
            return self.last_number
        first = max(self.last_number, above) + 1
        self.last_number = first + span - 1
        return first
