"""What kazoo calls when a node that is waited for is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kazoo.protocol.states import EventType, WatchedEvent


@dataclass(frozen=True)
class Watcher:
    """Equal for all that wait for one key, so that kazoo calls one of them and keeps no more."""

    #: Called with the key and the path of the node.
    moved: Callable[[str, str], None]
    key: str

    def __call__(self, event: WatchedEvent) -> None:
        # The other event is that the connection is gone. Waiters are told when it is back.
        if event.type == EventType.DELETED:
            self.moved(self.key, event.path)
