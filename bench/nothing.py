"""A lock service that costs nothing, for one process: what is left is the engine's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from distlock.backends.base import Ask, Capabilities, Held, Sink


class NothingBackend:
    """Any ask has the lock: the engine asks once for all threads of a process, and never while it holds."""

    capabilities = Capabilities(fence=True)

    def __init__(self, url: str) -> None:
        self._numbers = itertools.count(1)

    def open(self, sink: Sink) -> None: ...

    def request(self, ask: Ask, deadline: float = math.inf) -> Held:
        return Held(next(self._numbers) * ask.span)

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        return True

    def renew(self, asks: Sequence[Ask]) -> Sequence[bool | None]:
        return [True] * len(asks)

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        return True

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        return Held(number + 1)

    def locked(self, key: str) -> bool:
        return False

    def close(self) -> None: ...

    def after_fork(self) -> None: ...
