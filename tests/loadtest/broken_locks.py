"""Lock services that are broken on purpose, to see whether the harness notices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.errors import BackendUnavailable
from tests.backend_class import backend_class

FileBackend = backend_class("file:///nowhere")


class DoesNothing(FileBackend):
    """Gives every process the lock at once."""

    fences = count(1)

    def request(self, ask: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        return Acquired(next(self.fences) * ask.span)

    def renew(self, asks: Sequence[LockRequest]) -> list[bool]:
        return [True for _ in asks]

    def release(self, ask: LockRequest, deadline: float = math.inf) -> bool:
        return True


class RefusesNearlyEverybody(FileBackend):
    """Sells nothing twice, because it hardly sells anything."""

    asked = count(1)

    def request(self, ask: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        if next(self.asked) % 20:
            raise BackendUnavailable("Not today.")
        return super().request(ask, deadline)
