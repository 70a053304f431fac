"""A sink that keeps nobody alive: threads tell a backend things, also when its client was dropped."""

from __future__ import annotations

import weakref

from distlock.backends.base import Sink


class WeakSink:
    """Passes on to *sink* for as long as somebody else holds it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = weakref.ref(sink)

    def notified(self, key: str) -> None:
        if (sink := self._sink()) is not None:
            sink.notified(key)

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        if (sink := self._sink()) is not None:
            sink.handed_off(key, token, number, sent)

    def lost(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.lost(key, token)

    def release_requested(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.release_requested(key, token)

    def missed_notifications(self) -> None:
        if (sink := self._sink()) is not None:
            sink.missed_notifications()

    def reconnected(self) -> None:
        if (sink := self._sink()) is not None:
            sink.reconnected()
