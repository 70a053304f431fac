"""Locking switched off, for users' tests: every lock is granted at once, to every caller.

The lock objects are the real ones, so that tests find wrong names, wrong options and surplus releases. Only
the engine below them is missing.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Mapping
from weakref import WeakSet

from distlock import clock
from distlock.backends.memory.backend import MemoryLatches
from distlock.backends.memory.service import LatchTable
from distlock.engine.sans_io import Commands, Parker
from distlock.errors import LockLost, NotHeld
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.client import Locks
from distlock.locks.latch_waits import LatchWaits
from distlock.locks.namespace import Acquisition, Namespace
from distlock.terms import EXCLUSIVE, Mode, Terms


class DummyGrant(Grant):
    """A grant that excludes nobody. It is never lost, unless a test calls `lose`."""

    __slots__ = ("fences", "holder_ids", "mode", "namespace", "released", "why_lost")

    fences: Mapping[str, Fence]
    holder_ids: Mapping[str, str]
    mode: Mode
    namespace: str
    released: bool
    why_lost: str | None

    def __init__(self, namespace: str, fences: Mapping[str, Fence], mode: Mode = EXCLUSIVE) -> None:
        self.namespace = namespace
        self.fences = fences
        self.mode = mode
        self.holder_ids = dict.fromkeys(fences, secrets.token_hex(16))
        self.released = False
        self.why_lost = None

    def __repr__(self) -> str:
        return f"<DummyGrant of {', '.join(map(repr, self.fences))}>"

    @property
    def lost(self) -> bool:
        return self.why_lost is not None

    def lose(self, why: str) -> None:
        """Mark it as lost, unless it was released: see `distlock.testing.lose`."""
        if not self.released:
            self.why_lost = why

    def remaining(self) -> float:
        return 0.0 if self.released or self.lost else math.inf

    def check(self) -> None:
        names = ", ".join(map(repr, self.fences))
        if self.released:
            raise NotHeld(f"The lock {names} was released before it was checked.")
        if self.lost:
            raise LockLost(
                f"The lock {names} was lost: {self.why_lost}. Undo what was done under it, and retry."
            )

    def raise_fence(self, name: str, number: int) -> bool:
        return False

    def _release(self, until: float = math.inf) -> Commands[None]:
        self.released = True
        yield from ()

    def _abandon(self, error: BaseException) -> None:
        self.released = True


class DummyLatches(MemoryLatches):
    """The latches of one client in this process. They work as usual, because a latch keeps nobody out."""

    process = "this"

    def __init__(self) -> None:
        self.latches = LatchTable(clock.now)
        self.waits = LatchWaits(self)

    def notified(self, key: str) -> None:
        self.waits.notified(key)


class DummyNamespace(Namespace):
    """A namespace in which every caller gets every lock at once."""

    keeps_out = False

    def __init__(self, prefix: str, terms: Terms, epoch: int) -> None:
        super().__init__(prefix, terms)
        self._epoch = epoch
        # next() is atomic, so threads never get the same number. The numbers begin with the time, so that a
        # later process has larger ones: a fence's row may remember the last.
        self._numbers = itertools.count(time.time_ns() // 1000)
        self._out: WeakSet[DummyGrant] = WeakSet()
        self._latches = DummyLatches()

    @property
    def latches(self) -> LatchWaits:
        return self._latches.waits

    def close(self) -> None:
        self._latches.waits.close()
        super().close()

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        yield from ()
        grants = [
            DummyGrant(self.prefix, {name: Fence(self._epoch, next(self._numbers))}, terms.mode)
            for name in names
        ]
        with self.entries_mutex:
            self._out.update(grants)
        return grants[0] if len(grants) == 1 else MultiGrant(grants)

    def grants(self) -> list[Grant]:
        with self.entries_mutex:
            return [one for one in self._out if not (one.released or one.lost)]


class DummyLocks(Locks):
    """A client that locks nothing."""

    def __init__(self, prefix: str = "", *, ttl: float = 10.0, timeout: float = 5.0, epoch: int = 1) -> None:
        super().__init__(DummyNamespace(prefix, Terms(ttl, math.inf), epoch), timeout)
