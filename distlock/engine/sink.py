"""What a lock service tells without being asked.

A message is only a hint. The state is on the service, and a caller that hears of it asks there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from distlock.engine.critical_section import CriticalSection
from distlock.engine.keeper import Keeper
from distlock.engine.loss import Lose
from distlock.engine.revocation import Revocation
from distlock.engine.room import Handed, Rooms


class Waits(Protocol):
    """Those that wait for something else than a lock."""

    def hint(self, key: str) -> None: ...
    def doubt(self) -> None: ...


class EngineSink:
    """See `distlock.backends.base.Sink`."""

    def __init__(
        self,
        section: CriticalSection,
        rooms: Rooms,
        keeper: Keeper,
        lose: Lose,
        revocation: Revocation,
        on_reconnected: Callable[[], None],
    ) -> None:
        self._section = section
        self._rooms = rooms
        self._keeper = keeper
        self._lose = lose
        self.release_requested = revocation.hear
        self.reconnected = on_reconnected
        self.waits: Waits | None = None

    def hint(self, key: str) -> None:
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            if room is not None:
                room.wake_leader()
        if room is None and self.waits is not None:
            self.waits.hint(key)

    def handed(self, key: str, token: str, number: int, sent: float) -> None:
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            if room is not None:
                room.handed = Handed(token, number, sent)
                room.wake_leader()

    def lost(self, key: str, token: str) -> None:
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            hold = room.hold_of(token) if room is not None else None
        if hold is not None:
            self._lose(hold, "its lock service said so", retire=False)

    def doubt(self) -> None:
        with self._section.mutex:
            for room in self._rooms.by_key.values():
                room.wake_leader()
            self._keeper.hurry()
        if self.waits is not None:
            self.waits.doubt()
