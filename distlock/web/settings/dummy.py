"""Locking switched off, for users' tests: every lock is granted at once, to every caller.

The lock objects are the real ones, so that tests find wrong names, wrong options and surplus releases. Only
the engine below them is missing.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Iterator, Mapping
from weakref import WeakSet

from distlock import clock
from distlock.backends.inspectable import KeyState, SeenProcess, StatusRow
from distlock.backends.memory.backend import MemoryLatches
from distlock.backends.memory.service import LatchTable
from distlock.engine.commands import Commands, Parker
from distlock.errors import LockLost, NotHeld
from distlock.grants.grant import Fence, Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.client import Locks
from distlock.locks.latch_waits import LatchWaits
from distlock.locks.namespace import Namespace
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, Mode, Terms


class DummyGrant(Grant):
    """A grant that excludes nobody. It is never lost, unless a test calls `lose`."""

    __slots__ = ("_fences", "_holder_ids", "_mode", "_namespace", "_released", "_why_lost")

    def __init__(self, namespace: str, fences: Mapping[str, Fence], mode: Mode = EXCLUSIVE) -> None:
        self._namespace = namespace
        self._fences = fences
        self._mode = mode
        self._holder_ids = dict.fromkeys(fences, secrets.token_hex(16))
        self._released = False
        self._why_lost: str | None = None

    def __repr__(self) -> str:
        return f"<DummyGrant of {', '.join(map(repr, self._fences))}>"

    @property
    def fences(self) -> Mapping[str, Fence]:
        return self._fences

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def holder_ids(self) -> Mapping[str, str]:
        return self._holder_ids

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def released(self) -> bool:
        return self._released

    @property
    def lost(self) -> bool:
        return self._why_lost is not None

    @property
    def why_lost(self) -> str | None:
        return self._why_lost

    def lose(self, why: str) -> None:
        """Mark it as lost: see `distlock.testing.lose`."""
        if not self._released:
            self._why_lost = why

    def remaining(self) -> float:
        return 0.0 if self._released or self.lost else math.inf

    def check(self) -> None:
        names = ", ".join(map(repr, self._fences))
        if self._released:
            raise NotHeld(f"The lock {names} was released before it was checked.")
        if self.lost:
            raise LockLost(
                f"The lock {names} was lost: {self._why_lost}. Undo what was done under it, and retry."
            )

    def lift(self, name: str, number: int) -> bool:
        return False

    def _release(self, until: float = math.inf) -> Commands[None]:
        self._released = True
        yield from ()

    def _abandon(self, error: BaseException) -> None:
        self._released = True


class DummyLatches(MemoryLatches):
    """The latches of one client in this process. They work, because a latch keeps nobody out."""

    process = "this"

    def __init__(self) -> None:
        self.latches = LatchTable(clock.now)
        self.waits = LatchWaits(self)

    def notified(self, key: str) -> None:
        self.waits.notified(key)


class DummyNamespace(Namespace):
    """Names that every caller gets at once."""

    keeps_out = False

    def __init__(self, prefix: str, terms: Terms, epoch: int) -> None:
        super().__init__(prefix, terms)
        self._epoch = epoch
        # next() is one step, so threads never get the same number. The next process has larger numbers,
        # because a fence's row may remember the last one.
        self._numbers = itertools.count(time.time_ns() // 1000)
        self._out: WeakSet[DummyGrant] = WeakSet()
        self._latches = DummyLatches()

    @property
    def latches(self) -> LatchWaits:
        return self._latches.waits

    def close(self) -> None:
        self._latches.waits.close()
        super().close()

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant]:
        yield from ()
        grants = [
            DummyGrant(self.prefix, {name: Fence(self._epoch, next(self._numbers))}, terms.mode)
            for name in names
        ]
        with self.books:
            self._out.update(grants)
        return grants[0] if len(grants) == 1 else MultiGrant(grants)

    def abandon(self, names: tuple[str, ...], parker: Parker, error: BaseException) -> None: ...

    def is_holder(self, name: str, owner: Owner) -> bool:
        return False

    def grants(self) -> list[Grant]:
        with self.books:
            return [one for one in self._out if not (one.released or one.lost)]

    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        return KeyState(), None, ""

    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        return iter(())

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        return False

    def locked(self, name: str) -> bool:
        return False


class DummyLocks(Locks):
    """A client that locks nothing."""

    def __init__(self, prefix: str = "", *, ttl: float = 10.0, timeout: float = 5.0, epoch: int = 1) -> None:
        super().__init__(DummyNamespace(prefix, Terms(ttl, math.inf), epoch), timeout)
