"""A sink that keeps nobody alive: threads tell a backend things, also when its client was dropped."""

from __future__ import annotations

import weakref

from distlock.backends.base import Sink


class WeakSink:
    """Passes on to *sink* for as long as somebody else holds it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = weakref.ref(sink)

    def hint(self, key: str) -> None:
        if (sink := self._sink()) is not None:
            sink.hint(key)

    def handed(self, key: str, token: str, number: int, sent: float) -> None:
        if (sink := self._sink()) is not None:
            sink.handed(key, token, number, sent)

    def lost(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.lost(key, token)

    def release_requested(self, key: str, token: str) -> None:
        if (sink := self._sink()) is not None:
            sink.release_requested(key, token)

    def doubt(self) -> None:
        if (sink := self._sink()) is not None:
            sink.doubt()

    def reconnected(self) -> None:
        if (sink := self._sink()) is not None:
            sink.reconnected()
