"""What kazoo calls when something happened to what is watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kazoo.protocol.states import EventType, WatchedEvent


@dataclass(frozen=True)
class Watcher:
    """Equal for all that wait for one key, so that kazoo calls one of them and keeps no more."""

    #: Called with the key and the path of the node: it is gone.
    moved: Callable[[str, str], None]
    key: str
    #: The same, where the node has changed, or one below it has come or gone.
    changed: Callable[[str, str], None] | None = None

    def __call__(self, event: WatchedEvent) -> None:
        # There is a third event, that the connection is gone. Waiters are told when it is back.
        if event.type == EventType.DELETED:
            self.moved(self.key, event.path)
        elif event.type in (EventType.CHANGED, EventType.CHILD) and self.changed is not None:
            self.changed(self.key, event.path)
