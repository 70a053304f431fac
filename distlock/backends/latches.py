"""Latches: the protocol of a backend with the capability ``latch``, beyond `distlock.backends.base`.

A latch is a count that goes down to 0, which opens the latch, and never goes up. It lives for its *ttl*,
which each count restarts. An open latch lives as long, so that late waiters pass, too.

After a latch was deleted or has expired, another one may be made under its key: another *life*. A caller
looks first, and names the life that it counts or deletes. So a repeated or late call changes no later life.

Each count has a *part*, a text that identifies it. The latch remembers the parts that it has counted, at
least the latest `REMEMBERED`, and counts none of them twice. So a call that names the life may be repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

#: The least number of parts that a latch remembers.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class LatchState:
    """The state of a living latch at one moment."""

    #: The caller whose `make_latch` made it.
    maker: str
    #: The original count.
    total: int
    #: The remaining count. At 0 the latch is open.
    left: int
    #: Seconds until the latch expires, unless a part is counted.
    ttl: float
    #: The id of this life of the latch; "" if its maker identifies it.
    id: str = ""

    @property
    def life(self) -> str:
        """The text that identifies this life of the latch: `id`, or else `maker`."""
        return self.id or self.maker


@runtime_checkable
class Latches(Protocol):
    """A backend with the capability ``latch``. Its calls keep deadlines as the calls of `Backend` do.

    The state None means that there is no such latch.
    """

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        """Make the latch *key*, unless there is one. Return its state, whose *maker* tells who made it."""

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        """Count down by *by*, once for each *part*, and not below 0. Notify watchers if the latch opens.

        *life*: the `LatchState.life` to count. Return None if that life is over. "" means any life; a caller
        that passes "" must not repeat the call.
        """

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        """End a life of the latch *key*, open or not, and notify watchers.

        *life*: as for `count_latch_down`. Return True if this call ended the life: at most one call gets
        True.
        """

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> Sequence[LatchState | None]:
        """Return the state of each of *keys*.

        *watch*: call `Sink.notified` when one of them opens or is deleted. A watch ends with its
        notification, a minute after the latest call for it, or with its connection. In the last case
        `Sink.missed_notifications` is called when there is another connection.
        """


class LatchRecord:
    """A latch in memory, a file or a node, for backends whose lock service can't count.

    One caller at a time changes it. The backend knows when it expires.
    """

    def __init__(self, maker: str, total: int, left: int, ttl: float, parts: Iterable[str] = ()) -> None:
        self.maker = maker
        self.total = total
        self.left = left
        #: Seconds that the latch lives without a count.
        self.ttl = ttl
        #: The counted parts, the oldest first.
        self._parts = dict.fromkeys(parts)

    def is_life(self, life: str) -> bool:
        """Return whether *life* is the life of this record, which its maker identifies. "" means any life."""
        return life in ("", self.maker)

    def count(self, by: int, part: str) -> bool:
        """Count *part*. Return False, and change nothing, if it was counted before or the latch is open."""
        if not self.left or part in self._parts:
            return False
        self.left = max(0, self.left - by)
        self._parts[part] = None
        if len(self._parts) > REMEMBERED:
            del self._parts[next(iter(self._parts))]
        return True

    def state(self, ttl: float, life: str = "") -> LatchState:
        """Return the state. *ttl*: the remaining seconds. *life*: as `LatchState.id`."""
        return LatchState(self.maker, self.total, self.left, ttl, life)

    def written(self) -> bytes:
        told = (self.maker, self.total, self.left, self.ttl, list(self._parts))
        return json.dumps(told, separators=(",", ":")).encode()

    @classmethod
    def read(cls, text: bytes) -> LatchRecord:
        """Return the record that `written` wrote. Raises ValueError for anything else."""
        try:
            maker, total, left, ttl, parts = json.loads(text)
            return cls(str(maker), int(total), int(left), float(ttl), map(str, parts))
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
