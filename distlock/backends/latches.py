"""What a backend owes beyond `distlock.backends.base` if it has latches (`Capabilities.latch`).

A latch is a count that goes down to 0, which opens it, and nothing leads back. It is made once, and lives
for its *ttl* from then on; each count that goes down starts that anew. An open one lives as long, so that
those who come late pass, too. Then it is gone: nobody is told that it is open.

A count is known by its *part*. The latch remembers the parts that it has counted, at least the latest
`REMEMBERED`, for as long as it lives: one that comes again changes nothing. So every call may be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

#: How many parts a latch remembers at least.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class LatchState:
    """A latch that lives, at one moment."""

    #: Of those that made it: the one that did.
    maker: str
    #: What it was made with, and what is left of it. 0: it is open.
    total: int
    left: int
    #: Seconds until it is gone, unless something is counted.
    ttl: float


@runtime_checkable
class Latches(Protocol):
    """A backend with the capability ``latch``. The calls are as those of `distlock.backends.base.Backend`.

    None: there is no such latch, or not any more.
    """

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        """Make the latch *key*, unless there is one. Returns what there is now; *maker* tells whose it is."""

    def count_latch_down(self, key: str, by: int, part: str, deadline: float = math.inf) -> LatchState | None:
        """Count *part* down by *by*, once, and not below 0. Those that watch are told when that opens it."""

    def delete_latch(self, key: str, deadline: float = math.inf) -> bool:
        """End the life of the latch *key*, open or not. Those that watch are told. False: there is none."""

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> Sequence[LatchState | None]:
        """Each of *keys*. *watch*: `Sink.hint` tells when one of them opens, or is deleted.

        A watch ends with the hint, with its connection, which `Sink.doubt` tells when there is another one,
        or when it is not asked for again for a minute.
        """
