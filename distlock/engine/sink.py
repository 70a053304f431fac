"""What a lock service tells without being asked: the engine's `Sink`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlock.engine.machine import Engine


class EngineSink:
    """A message is only a hint. The state is on the service, and a caller that hears of it asks there."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def hint(self, key: str) -> None:
        with self._engine.mutex:
            room = self._engine.rooms.by_key.get(key)
            if room is not None:
                room.wake_leader()

    def lost(self, key: str, token: str) -> None:
        with self._engine.mutex:
            room = self._engine.rooms.by_key.get(key)
            hold = room.hold if room is not None else None
        if hold is not None and hold.ask.token == token:
            self._engine.lose(hold, "its lock service said so", retire=False)

    def doubt(self) -> None:
        with self._engine.mutex:
            for room in self._engine.rooms.by_key.values():
                room.wake_leader()
            self._engine.keeper.hurry()
