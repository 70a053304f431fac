"""A sink that remembers, and lets a test wait for what it was told."""

from __future__ import annotations

import threading


class RecordingSink:
    def __init__(self) -> None:
        self._told = threading.Condition()
        self.hints: list[str] = []
        #: Key, token, number, and since when.
        self.hand_offs: list[tuple[str, str, int, float]] = []
        self.losses: list[tuple[str, str]] = []
        #: Key and token, each time that they were told.
        self.requests: list[tuple[str, str]] = []
        self.doubts = 0
        self.reconnects = 0

    def notified(self, key: str) -> None:
        with self._told:
            self.hints.append(key)
            self._told.notify_all()

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        with self._told:
            self.hand_offs.append((key, token, number, sent))
        self.notified(key)

    def lost(self, key: str, token: str) -> None:
        with self._told:
            self.losses.append((key, token))
            self._told.notify_all()

    def release_requested(self, key: str, token: str) -> None:
        with self._told:
            self.requests.append((key, token))
            self._told.notify_all()

    def missed_notifications(self) -> None:
        with self._told:
            self.doubts += 1
            self._told.notify_all()

    def reconnected(self) -> None:
        with self._told:
            self.reconnects += 1
            self._told.notify_all()

    def wait_for_hint(self, key: str, timeout: float = 5.0) -> bool:
        """Whether there was a hint for *key*, or comes one within *timeout* seconds."""
        with self._told:
            return self._told.wait_for(lambda: key in self.hints, timeout)
