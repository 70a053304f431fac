"""Locks inside one process: for tests, and the model that the services across processes are held to.

``memory://name``: clients with the same name share the service. It has leases, a queue and acknowledged
hand-overs, as Redis has, so that the engine can be tested on it, in time that a test makes up.
"""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from distlock import clock
from distlock.backends.announcements import Announcements
from distlock.backends.base import Ask, Busy, Capabilities, Held, Queued, Sink
from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight

#: Seconds that a hand-over is worth until it is acknowledged: what a dead waiter costs.
WINDOW = 0.5
#: Seconds between polls. A waiter that has not polled for three times that is taken for dead.
POLL = 1.0


@dataclass
class Entry:
    ask: Ask
    backend: MemoryBackend
    seen: float


@dataclass
class Record:
    """One key: its owner, until when, and its waiters."""

    owner: Entry | None = None
    number: int = 0
    ends: float = 0.0
    acknowledged: bool = True
    queue: list[Entry] = field(default_factory=list)


class MemoryService:
    """The state, behind one lock."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self.now = now
        self.mutex = threading.RLock()
        self.records: dict[str, Record] = {}
        self.last_number = 0
        self.announcements = Announcements()

    def request(self, ask: Ask, backend: MemoryBackend) -> Held | Queued | Busy:
        with self.mutex:
            now = self.now()
            record = self._current(ask.key)
            mine = next((entry for entry in record.queue if entry.ask.token == ask.token), None)
            if mine is not None:
                mine.seen = now
            if record.owner is None and not record.queue:
                self._own(record, Entry(ask, backend, now), now, ask.ttl, acknowledged=True)
            if record.owner is not None and record.owner.ask.token == ask.token:
                if not record.acknowledged:
                    record.acknowledged = True
                    record.ends = now + ask.ttl
                return Held(record.number, record.ends - now)
            if not ask.wait:
                return Busy()
            if mine is None:
                record.queue.append(Entry(ask, backend, now))
            # Behind a hand-over that nobody acknowledges, it is worth being back when its window ends.
            return Queued(min(POLL, max(0.0, record.ends - now) + 0.01))

    def cancel(self, ask: Ask) -> bool:
        with self.mutex:
            record = self._current(ask.key)
            if record.owner is not None and record.owner.ask.token == ask.token:
                return True
            record.queue = [entry for entry in record.queue if entry.ask.token != ask.token]
            self._tidy(ask.key, record)
            return False

    def renew(self, ask: Ask) -> bool:
        with self.mutex:
            record = self._current(ask.key)
            ours = record.owner is not None and record.owner.ask.token == ask.token
            if ours:
                record.ends = self.now() + ask.ttl
            self._tidy(ask.key, record)
            return ours

    def release(self, ask: Ask) -> bool:
        with self.mutex:
            record = self._current(ask.key)
            ours = record.owner is not None and record.owner.ask.token == ask.token
            if ours:
                record.owner = None
                self._hand_over(record)
            self._tidy(ask.key, record)
            return ours

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        with self.mutex:
            record = self._current(ask.key)
            if record.owner is None or record.owner.ask.token != ask.token:
                self._tidy(ask.key, record)
                return None
            if record.number <= number:
                record.number = max(self.last_number, number) + 1
                self.last_number = record.number + ask.span - 1
            record.acknowledged = True
            record.ends = self.now() + ask.ttl
            return Held(record.number, ask.ttl)

    def locked(self, key: str) -> bool:
        with self.mutex:
            record = self._current(key)
            held = record.owner is not None
            self._tidy(key, record)
            return held

    def inspect(self, key: str) -> Sight:
        with self.mutex:
            record = self._current(key)
            queue = [self._seen(entry, key) for entry in record.queue[:MOST_SHOWN]]
            sight = Sight(queue=queue, waiting=len(record.queue))
            if record.owner is not None:
                holder, left = self._seen(record.owner, key), record.ends - self.now()
                sight = Sight(holder, record.number, left, queue, len(record.queue))
            self._tidy(key, record)
            return sight

    def break_hold(self, key: str, number: int) -> bool:
        with self.mutex:
            record = self._current(key)
            broken = record.owner
            if broken is None or record.number != number:
                self._tidy(key, record)
                return False
            record.owner = None
            self._hand_over(record)
            self._tidy(key, record)
        broken.backend.lost(key, broken.ask.token)
        return True

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
            for key, record in list(self.records.items()):
                record.queue = [entry for entry in record.queue if entry.backend is not backend]
                owner = record.owner
                if owner is not None and owner.backend is backend and not record.acknowledged:
                    record.owner = None
                    self._hand_over(record)
                self._tidy(key, record)

    def _current(self, key: str) -> Record:
        """The record, after what time alone has changed."""
        record = self.records.setdefault(key, Record())
        if record.owner is not None and self.now() >= record.ends:
            record.owner = None
        if record.owner is None:
            self._hand_over(record)
        return record

    def _hand_over(self, record: Record) -> None:
        now = self.now()
        while record.queue:
            entry = record.queue.pop(0)
            if now - entry.seen <= 3 * POLL:
                self._own(record, entry, now, WINDOW, acknowledged=False)
                entry.backend.hint(entry.ask.key)
                return

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> None:
        record.owner = entry
        record.ends = now + ttl
        record.acknowledged = acknowledged
        record.number = self.last_number + 1
        self.last_number += entry.ask.span

    def _tidy(self, key: str, record: Record) -> None:
        if record.owner is None and not record.queue:
            self.records.pop(key, None)


_services: weakref.WeakValueDictionary[str, MemoryService] = weakref.WeakValueDictionary()
_services_mutex = threading.RLock()


class MemoryBackend:
    """One process's side of the service that its URL names."""

    capabilities = Capabilities(lease=True, fence=True, inspect=True)

    def __init__(self, url: str, service: MemoryService | None = None) -> None:
        if service is None:
            with _services_mutex:
                service = _services.setdefault(url, MemoryService())
        self.service = service
        self.process = secrets.token_hex(8)
        self._sink: Sink | None = None

    def open(self, sink: Sink) -> None:
        self._sink = sink

    def hint(self, key: str) -> None:
        if self._sink is not None:
            self._sink.hint(key)

    def lost(self, key: str, token: str) -> None:
        if self._sink is not None:
            self._sink.lost(key, token)

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        return self.service.request(ask, self)

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        return self.service.cancel(ask)

    def renew(self, asks: Sequence[Ask]) -> list[bool]:
        return [self.service.renew(ask) for ask in asks]

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        return self.service.release(ask)

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        return self.service.raise_floor(ask, number)

    def locked(self, key: str) -> bool:
        return self.service.locked(key)

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        return self.service.inspect(key)

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self.service.break_hold(key, number)

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
    ) -> bool:
        return self.service.announce(self.process, host, pid, rows, gone, life)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        return iter(self.service.announced(before))

    def close(self) -> None:
        self.service.leave(self)
        self.process = secrets.token_hex(8)

    def after_fork(self) -> None:
        # The child has a copy of the parent's memory, and so of its locks: it starts with none of them.
        self.service = MemoryService()
        self.process = secrets.token_hex(8)
