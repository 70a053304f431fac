"""What a lock service tells without being asked: the engine's `Sink`."""

from __future__ import annotations

from distlock.engine.critical_section import CriticalSection
from distlock.engine.keeper import Keeper
from distlock.engine.loss import Lose
from distlock.engine.room import Rooms


class EngineSink:
    """A message is only a hint. The state is on the service, and a caller that hears of it asks there."""

    def __init__(self, section: CriticalSection, rooms: Rooms, keeper: Keeper, lose: Lose) -> None:
        self._section = section
        self._rooms = rooms
        self._keeper = keeper
        self._lose = lose

    def hint(self, key: str) -> None:
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            if room is not None:
                room.wake_leader()

    def lost(self, key: str, token: str) -> None:
        with self._section.mutex:
            room = self._rooms.by_key.get(key)
            hold = room.hold if room is not None else None
        if hold is not None and hold.ask.token == token:
            self._lose(hold, "its lock service said so", retire=False)

    def doubt(self) -> None:
        with self._section.mutex:
            for room in self._rooms.by_key.values():
                room.wake_leader()
            self._keeper.hurry()
