"""Locking switched off, for users' tests: every lock is granted at once, to everybody."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from distlock.grant import Fence, Grant
from distlock.names import check_name
from distlock.steps import Steps


class DummyGrant(Grant):
    """Looks like a grant, keeps nobody out, is never lost."""

    __slots__ = ("_fences", "_released")

    def __init__(self, fences: Mapping[str, Fence]) -> None:
        self._fences = fences
        self._released = False

    @property
    def fences(self) -> Mapping[str, Fence]:
        return self._fences

    @property
    def released(self) -> bool:
        return self._released

    @property
    def lost(self) -> bool:
        return False

    def remaining(self) -> float:
        return 0.0 if self._released else math.inf

    def check(self) -> None:
        return None

    def _release(self) -> Steps[None]:
        self._released = True
        yield from ()


class DummyLock:
    """What `DummyLocks.lock` returns."""

    def __init__(self, locks: DummyLocks, names: tuple[str, ...]) -> None:
        self._locks = locks
        self._out: list[DummyGrant] = []
        self.names = names

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> DummyGrant:
        grant = self._locks.grant(self.names)
        self._out.append(grant)
        return grant

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> DummyGrant:
        return self.acquire()

    def release(self) -> None:
        self._out.pop().release()

    async def arelease(self) -> None:
        self.release()

    def locked(self) -> bool:
        return False

    def owned(self) -> bool:
        return any(not grant.released for grant in self._out)

    def __enter__(self) -> DummyGrant:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    async def __aenter__(self) -> DummyGrant:
        return self.acquire()

    async def __aexit__(self, *exc_info: object) -> None:
        self.release()


class DummyLocks:
    """A client that locks nothing. Names are checked, so that a test finds those that can't be locked."""

    def __init__(self, era: int = 1) -> None:
        self._era = era
        # next() of a count is one step of the interpreter: threads never get the same number.
        self._numbers = itertools.count(1)

    def lock(self, *names: str, timeout: float | None = None, ttl: float | None = None) -> DummyLock:
        if not names:
            raise TypeError("lock() needs at least one name, for example lock('product_1').")
        return DummyLock(self, tuple(sorted({check_name(name) for name in names})))

    rlock = lock

    def grant(self, names: tuple[str, ...]) -> DummyGrant:
        return DummyGrant({name: Fence(self._era, next(self._numbers)) for name in names})

    def close(self) -> None:
        return None
