"""The state of a lock service that lives in memory, behind one mutex.

It has leases, a queue and acknowledged hand-offs, as Redis has, so that the engine can be tested on it, in
time that a test makes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distlock import clock
from distlock.backends.announcements import Announcements
from distlock.backends.base import PERMIT, READ, Acquired, Busy, LockRequest, Mode, Queued
from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight
from distlock.backends.memory.latches import KeptLatches
from distlock.backends.memory.record import Entry, Owner, Record

if TYPE_CHECKING:
    from distlock.backends.memory.backend import MemoryBackend

#: Seconds that a hand-off is worth until it is acknowledged: what a dead waiter costs.
WINDOW = 0.5
#: Seconds between polls. A waiter that has not polled for three times that is taken for dead.
POLL = 1.0


class MemoryService:
    """The state, behind one lock."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self.now = now
        self.mutex = threading.RLock()
        self.records: dict[str, Record] = {}
        self.last_number = 0
        self.announcements = Announcements()
        self.latches = KeptLatches(now)

    def request(self, request: LockRequest, backend: MemoryBackend) -> Acquired | Queued | Busy:
        with self.mutex:
            now = self.now()
            record = self._current(request.key)
            mine = record.waiting(request.token)
            if mine is not None:
                mine.seen = now
            owner = record.owner(request.token)
            if owner is None and not record.queue and record.has_room(request):
                owner = self._own(record, Entry(request, backend, now), now, request.ttl, acknowledged=True)
            if owner is not None:
                if not owner.acknowledged:
                    owner.acknowledged = True
                    owner.ends = now + request.ttl
                followed = owner.mode == READ and bool(record.queue)
                return Acquired(owner.number, owner.ends - now, followed, record.other_limit(request))
            if not request.wait:
                self._tidy(request.key, record)
                return Busy()
            if mine is None:
                record.queue.append(Entry(request, backend, now))
            # Behind a hand-off that nobody acknowledges, it is worth being back when its window ends.
            ends = min((owner.ends for owner in record.owners), default=now)
            return Queued(min(POLL, max(0.0, ends - now) + 0.01))

    def cancel(self, request: LockRequest) -> bool:
        with self.mutex:
            record = self._current(request.key)
            if record.owner(request.token) is not None:
                return True
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            # The waiters behind it may fit in where it did not.
            self._hand_off(record)
            self._tidy(request.key, record)
            return False

    def renew(self, request: LockRequest) -> bool:
        with self.mutex:
            record = self._current(request.key)
            owner = record.owner(request.token)
            if owner is not None:
                owner.ends = self.now() + request.ttl
                owner.tell()
            self._tidy(request.key, record)
            return owner is not None

    def acknowledge(self, request: LockRequest, number: int) -> bool:
        with self.mutex:
            record = self._current(request.key)
            owner = record.owner(request.token)
            ours = owner is not None and owner.number == number
            if owner is not None and ours:
                owner.acknowledged = True
                owner.ends = self.now() + request.ttl
            self._tidy(request.key, record)
            return ours

    def release(self, request: LockRequest) -> bool:
        with self.mutex:
            record = self._current(request.key)
            owner = record.owner(request.token)
            if owner is not None:
                record.owners.remove(owner)
                self._hand_off(record)
            self._tidy(request.key, record)
            return owner is not None

    def downgrade(self, request: LockRequest) -> bool:
        with self.mutex:
            record = self._current(request.key)
            owner = record.owner(request.token)
            if owner is not None and owner.mode != READ:
                owner.mode = READ
                owner.number = self.last_number
                self._hand_off(record)
            self._tidy(request.key, record)
            return owner is not None

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        with self.mutex:
            record = self._current(request.key)
            owner = record.owner(request.token)
            if owner is None:
                self._tidy(request.key, record)
                return None
            if owner.number <= number:
                owner.number = self._numbered(owner.mode, request.span, above=number)
            owner.acknowledged = True
            owner.ends = self.now() + request.ttl
            return Acquired(owner.number, request.ttl)

    def locked(self, key: str) -> bool:
        with self.mutex:
            record = self._current(key)
            self._tidy(key, record)
            return bool(record.owners)

    def inspect(self, key: str) -> Sight:
        with self.mutex:
            record = self._current(key)
            queue = [self._seen(entry, key) for entry in record.queue[:MOST_SHOWN]]
            sight = Sight(queue=queue, waiting=len(record.queue))
            if record.owners:
                first, *others = record.owners
                sight = Sight(
                    self._seen(first.entry, key),
                    first.number,
                    first.ends - self.now(),
                    queue,
                    len(record.queue),
                    mode=first.mode,
                    others=len(others),
                    beside=[self._seen(owner.entry, key) for owner in others[:MOST_SHOWN]],
                    out=record.out(),
                    limit=first.entry.request.limit if first.mode == PERMIT else 0,
                )
            self._tidy(key, record)
            return sight

    def break_hold(self, key: str, number: int) -> bool:
        with self.mutex:
            record = self._current(key)
            # Readers that came together have one number.
            broken = [owner for owner in record.owners if owner.number == number]
            if broken:
                record.owners = [owner for owner in record.owners if owner.number != number]
                self._hand_off(record)
            self._tidy(key, record)
        for owner in broken:
            owner.entry.backend.lost(key, owner.entry.request.token)
        return bool(broken)

    def request_release(self, key: str) -> bool:
        with self.mutex:
            record = self._current(key)
            for owner in record.owners:
                owner.release_requested = True
                owner.tell()
            self._tidy(key, record)
            return bool(record.owners)

    def announce(
        self, process: str, host: str, pid: int, rows: Sequence[Row], gone: Sequence[str], life: float
    ) -> bool:
        with self.mutex:
            return self.announcements.say(process, host, pid, rows, gone, life, self.now())

    def announced(self, before: str) -> list[Seen]:
        with self.mutex:
            return self.announcements.told(before, self.now())

    def _seen(self, entry: Entry, key: str) -> Seen:
        return self.announcements.seen(entry.backend.process, key, self.now())

    def leave(self, backend: MemoryBackend) -> None:
        """The backend was closed: it waits for nothing any more, and takes no lock that came to it."""
        with self.mutex:
            self.announcements.forget(backend.process)
            self.latches.forget(backend.process)
            for key, record in list(self.records.items()):
                record.queue = [entry for entry in record.queue if entry.backend is not backend]
                record.owners = [
                    owner
                    for owner in record.owners
                    if owner.entry.backend is not backend or owner.acknowledged
                ]
                self._hand_off(record)
                self._tidy(key, record)

    def _current(self, key: str) -> Record:
        """The record, after what time alone has changed."""
        record = self.records.setdefault(key, Record())
        now = self.now()
        record.owners = [owner for owner in record.owners if now < owner.ends]
        self._hand_off(record)
        return record

    def _hand_off(self, record: Record) -> None:
        """Let in who is first in line, as long as there is room: one writer, or a run of readers."""
        now = self.now()
        while (entry := self._first(record, now)) is not None and record.has_room(entry.request):
            # The waiters before it are dead.
            del record.queue[: record.queue.index(entry) + 1]
            owner = self._own(record, entry, now, WINDOW, acknowledged=False)
            entry.backend.handed_off(entry.request.key, entry.request.token, owner.number, entry.seen)

    def _first(self, record: Record, now: float) -> Entry | None:
        """The first in line that is alive. If none is, and nobody owns it, nobody waits for it either."""
        living = (entry for entry in record.queue if now - entry.seen <= 3 * POLL)
        first = next(living, None)
        if first is None and not record.owners:
            record.queue.clear()
        return first

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        number = self._numbered(entry.request.mode, entry.request.span)
        record.owners.append(Owner(entry, entry.request.mode, number, now + ttl, acknowledged))
        return record.owners[-1]

    def _numbered(self, mode: Mode, span: int, above: int = 0) -> int:
        """The first number of a new block. Readers reserve none: they have the last that was given out."""
        if mode == READ:
            self.last_number = max(self.last_number, above + 1)
            return self.last_number
        first = max(self.last_number, above) + 1
        self.last_number = first + span - 1
        return first

    def _tidy(self, key: str, record: Record) -> None:
        if not record.owners and not record.queue:
            self.records.pop(key, None)
