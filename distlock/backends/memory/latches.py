"""The latches of `distlock.backends.memory`, and the model that those of other lock services are held to."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from distlock.backends.latch_record import LatchRecord
from distlock.backends.latches import LatchState

#: Called with the key of a latch that has opened, or is deleted.
Told = Callable[[str], None]


class KeptLatches:
    """The latches of all clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mutex = threading.RLock()
        #: By key, with the moment at which it is gone.
        self._records: dict[str, tuple[LatchRecord, float]] = {}
        #: By key and client.
        self.watched: dict[str, dict[object, Told]] = {}

    def make(self, key: str, total: int, ttl: float, maker: str) -> LatchState:
        with self._mutex:
            for other in list(self._records):
                self._record(other)
            if self._record(key) is None:
                self._records[key] = LatchRecord(maker, total, total, ttl), self._now() + ttl
            return self._state(key)

    def count_down(self, key: str, by: int, part: str, life: str = "") -> LatchState | None:
        with self._mutex:
            record = self._record(key)
            if record is None or life not in ("", record.maker):
                return None
            if record.count(by, part):
                self._records[key] = record, self._now() + record.ttl
                if not record.left:
                    self._tell(key)
            return self._state(key)

    def delete(self, key: str, life: str = "") -> bool:
        with self._mutex:
            record = self._record(key)
            if record is None or life not in ("", record.maker):
                return False
            del self._records[key]
            self._tell(key)
            return True

    def look(self, key: str, who: object, told: Told | None) -> LatchState | None:
        with self._mutex:
            if self._record(key) is None:
                return None
            if told is not None:
                self.watched.setdefault(key, {})[who] = told
            return self._state(key)

    def forget(self, who: object) -> None:
        """*who* watches no more."""
        with self._mutex:
            for told in self.watched.values():
                told.pop(who, None)

    def _tell(self, key: str) -> None:
        for told in self.watched.pop(key, {}).values():
            told(key)

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


class MemoryLatches(ABC):
    """One client's side of them."""

    process: str

    @property
    @abstractmethod
    def _kept(self) -> KeptLatches:
        """The latches of all clients."""

    @abstractmethod
    def notified(self, key: str) -> None:
        """It is worth looking at *key* again."""

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self._kept.make(key, total, ttl, maker)

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return self._kept.count_down(key, by, part, life)

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return self._kept.delete(key, life)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        told = self.notified if watch else None
        return [self._kept.look(key, self.process, told) for key in keys]
