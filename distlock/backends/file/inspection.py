"""What a directory shows of its locks, what processes say of themselves there, and asking for a lock."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress

from distlock.backends.base import Sink
from distlock.backends.file.calls import Call
from distlock.backends.file.presence import Presence
from distlock.backends.file.record_locks import name_of
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Row, Seen, Sight


class Inspection(ABC):
    """The part of `FileBackend` that is not on the way of any lock."""

    _sink: Sink | None
    _presence: Presence | None

    @abstractmethod
    def unmade(self) -> Finding | None:
        """See `distlock.backends.findings.MadeByUse`."""

    @abstractmethod
    def _call(self) -> Call: ...

    @abstractmethod
    def _left(self, deadline: float) -> float:
        """How long to wait for a process that writes, seconds."""

    @property
    def process(self) -> str:
        """Its contender, as the files name it; "" before the first call."""
        presence = self._presence
        return name_of(presence.contender) if presence is not None else ""

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        """See `distlock.backends.inspectable.Inspectable`.

        The first in line counts as the holder, also while it has not taken the lock yet.
        """
        if self.unmade():
            return Sight()
        with self._call() as presence:
            return presence.looking.sight(key, self._left(deadline))

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        """See `distlock.backends.notifying.Notifies`."""
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.looking.request_release(key, self._left(deadline))

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            if not presence.looking.break_hold(key, number, self._left(deadline)):
                return False
            with suppress(OSError):
                # It is broken, whatever goes wrong with the hint.
                presence.wake_front(presence.line.spot(key))
            return True

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        """See `distlock.backends.inspectable.Inspectable`. It ends with its process, too."""
        with self._call() as presence:
            if self._sink is not None and (presence.ours.is_broken() or presence.wanted.has_news()):
                # There are no renewals that would find it out.
                self._sink.missed_notifications()
            return presence.announcement.say((host, pid), rows, gone, life)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        if self.unmade():
            return
        with self._call() as presence:
            speaking = presence.looking.speaking()
        for contender in speaking:
            with self._call() as presence:
                said = presence.looking.said_by(contender, before)
            yield from said
