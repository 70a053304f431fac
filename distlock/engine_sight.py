"""The part of a namespace with a lock service for those who look at its locks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from distlock import reentrance
from distlock.backends.findings import Examinable, Finding, MadeByUse
from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight
from distlock.backends.latches import LatchState
from distlock.backends.optional import Prepares
from distlock.engine.machine import Engine
from distlock.latch_waits import LatchWaits
from distlock.modes import LATCH


class EngineSight(ABC):
    engine: Engine
    prefix: str
    #: What stands before every name, as keys have it.
    _before: str

    @property
    @abstractmethod
    def latches(self) -> LatchWaits: ...

    @abstractmethod
    def refuse_lacking(self, capability: str, wish: str) -> None:
        """See `distlock.namespace.Namespace`."""

    def inspect(self, name: str) -> tuple[Sight, Row | None, str]:
        key = self._before + name
        sight = self.engine.inspect(key)
        if not self.engine.backend.capabilities.fair:
            sight = self._with_waiters(sight, key)
        return sight, self.engine.row(key), self.engine.process

    def _with_waiters(self, sight: Sight, key: str) -> Sight:
        """Nobody stands in line: those that wait are told by their processes, the oldest first."""
        told = [
            (seen.row.waiting_since, seen)
            for seen in self.engine.announced(key)
            if seen.row is not None and seen.row.key == key and seen.row.waiting
        ]
        waiting = [seen for _, seen in sorted(told, key=itemgetter(0))]
        return replace(sight, queue=waiting[:MOST_SHOWN], waiting=len(waiting))

    def known(self, name: str) -> tuple[Sight | None, Row | None]:
        key = self._before + name
        return self.engine.seen(key), self.engine.row(key)

    def announced(self, before: str) -> Iterator[tuple[str, Seen]]:
        start = len(self._before)
        for seen in self.engine.announced(self._before + before):
            if seen.row is not None:
                yield seen.row.key[start:], seen

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        return self.engine.break_hold(self._before + name, number)

    def request_release(self, name: str) -> bool:
        self.refuse_lacking("notify", "request_release()")
        return self.engine.request_release(self._before + name)

    def latch_states(self, names: Sequence[str]) -> Sequence[LatchState | None]:
        keys = [f"{self.prefix}/{LATCH}:{name}" for name in names]
        states: Sequence[LatchState | None] = reentrance.call(self.latches.latches.look_at_latches, keys)
        return states

    def examine(self) -> Iterator[Finding]:
        backend = self.engine.backend
        if not isinstance(backend, Examinable):
            return iter(())
        found: list[Finding] = reentrance.call(list, backend.examine())
        return iter(found)

    def prepare(self) -> str:
        """See `distlock.namespace.Namespace`."""
        backend = self.engine.backend
        if not isinstance(backend, Prepares):
            return "Nothing has to be made: locks can be taken."
        said: str = reentrance.call(backend.prepare)
        return said

    def unmade(self) -> Finding | None:
        backend = self.engine.backend
        if not isinstance(backend, MadeByUse):
            return None
        missing: Finding | None = reentrance.call(backend.unmade)
        return missing
