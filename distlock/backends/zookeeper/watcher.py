"""What kazoo calls when a node that is waited for is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kazoo.protocol.states import EventType, WatchedEvent

if TYPE_CHECKING:
    from distlock.backends.zookeeper.line import Line


@dataclass(frozen=True)
class Watcher:
    """Equal for all that wait for one key, so that kazoo calls one of them and keeps no more."""

    line: Line
    key: str

    def __call__(self, event: WatchedEvent) -> None:
        # The other event is that the connection is gone. Waiters are told when it is back.
        if event.type == EventType.DELETED:
            self.line.moved(self.key, event.path)
