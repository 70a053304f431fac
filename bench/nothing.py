"""A lock service that costs nothing, for one process: what is left is the engine's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from distlock.backends.base import Acquired, Capabilities, LockRequest, Sink


class NothingBackend:
    """Any ask has the lock: the engine asks once for all threads of a process, and never while it holds."""

    capabilities = Capabilities(fence=True)

    def __init__(self, url: str) -> None:
        self._numbers = itertools.count(1)

    def open(self, sink: Sink) -> None: ...

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired:
        return Acquired(next(self._numbers) * request.span)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return True

    def renew(self, requests: Sequence[LockRequest]) -> Sequence[bool | None]:
        return [True] * len(requests)

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return True

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return Acquired(number + 1)

    def locked(self, key: str) -> bool:
        return False

    def close(self) -> None: ...

    def after_fork(self) -> None: ...
