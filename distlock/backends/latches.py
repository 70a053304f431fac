"""What a backend owes beyond `distlock.backends.base` if it has latches (`Capabilities.latch`).

A latch is a count that goes down to 0, which opens it, and nothing leads back. It is made once, and lives
for its *ttl* from then on; each count that goes down starts that anew. An open one lives as long, so that
those who come late pass, too. Then it is gone: nobody is told that it is open.

A latch that is deleted or over may be made again under its key: that is another *life*. A caller looks first,
and says which life it counts or deletes. So a call that is repeated, or comes late, changes no later life.

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

    #: The caller whose `make` made it.
    maker: str
    #: The original and the remaining count. At 0 it is open.
    total: int
    left: int
    #: Seconds until it is gone, unless something is counted.
    ttl: float
    #: The id of this life of the latch; "" if its maker identifies it.
    id: str = ""

    @property
    def life(self) -> str:
        """The id of this life of the latch."""
        return self.id or self.maker


@runtime_checkable
class Latches(Protocol):
    """A backend with the capability ``latch``. The calls are as those of `distlock.backends.base.Backend`.

    None: there is no such latch, or not any more.
    """

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        """Make the latch *key*, unless there is one. Returns what there is now; *maker* tells whose it is."""

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        """Count *part* down by *by*, once, and not below 0. Those that watch are told when that opens it.

        *life*: the `LatchState.life` that is counted. None: it is over, whatever there is now. "": any life,
        which only a caller may say that never repeats the call.
        """

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        """End a life of the latch *key*, open or not. Those that watch are told.

        *life*: as for `count_latch_down`. True: this call ended it, which one of all calls is told at most.
        """

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> Sequence[LatchState | None]:
        """Each of *keys*. *watch*: `Sink.notified` tells when one of them opens, or is deleted.

        A watch ends with the hint, with its connection, which `Sink.missed_notifications` tells when there
        is another one, or when it is not asked for again for a minute.
        """
