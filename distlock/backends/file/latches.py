"""The part of `FileBackend` for latches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from distlock.backends.file.calls import Call
from distlock.backends.file.presence import Presence
from distlock.backends.findings import Finding
from distlock.backends.latches import LatchState


class LatchesInFiles(ABC):
    @abstractmethod
    def _call(self) -> Call: ...

    @abstractmethod
    def _left(self, deadline: float) -> float:
        """How long to wait for a process that writes, seconds."""

    @abstractmethod
    def unmade(self) -> Finding | None:
        """See `distlock.backends.findings.MadeByUse`."""

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        with self._call() as presence:
            return presence.latches.make(key, total, ttl, maker, self._left(deadline))

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        if self.unmade():
            return None
        with self._call() as presence:
            return presence.latches.count(key, by, part, life, self._left(deadline))

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.latches.delete(key, life, self._left(deadline))

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        if self.unmade():
            return [None] * len(keys)
        with self._call() as presence:
            look = self._watched if watch else self._seen
            return [look(presence, key, deadline) for key in keys]

    def _seen(self, presence: Presence, key: str, deadline: float) -> LatchState | None:
        return presence.latches.look(key)

    def _watched(self, presence: Presence, key: str, deadline: float) -> LatchState | None:
        # It listens before anybody can be told to give it a hint.
        presence.listen(key)
        state = presence.latches.watch(key, presence.contender, self._left(deadline))
        if state is None or not state.left:
            presence.listen_no_more(key)
        return state
