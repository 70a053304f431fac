"""What a backend owes beyond `distlock.backends.base` if several may hold a key at once.

**Readers** (`Capabilities.read`). A key is held by one ask in the mode `EXCLUSIVE`, or by any number in the
mode `READ`. All asks for it stand in one line, first come first served: a reader enters at once where no
writer holds it and nobody waits, and never passes one that waits. When the key is given back, the first in
line gets it; if that is a reader, the readers right behind it do, too, up to the first writer. Each reader
has a lease of its own. Readers reserve no numbers: a reader's `Held.number` is not smaller than any that
was given out for the key before it, and smaller than those of the holds after it; `raise_floor` lifts it,
and the numbers of the writers after it, as it does for a writer.

**Permits** (`Capabilities.permits`). A key of permits is never asked for in another mode. An ask is granted
when it is the first in line and its `Ask.permits` and those that are out are no more than its own
`Ask.limit`. Each ask has its own: during a deployment they may differ, which halts nobody and lets in
nobody that is behind. Each hold has a lease of its own, and numbers of no meaning.

`request`, `cancel`, `renew`, `release` and the sink do for them what they do for an exclusive hold. A
reader or a permit that was handed over is acknowledged by its next `request`; unacknowledged it lives for a
window.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from distlock.backends.base import Ask


@runtime_checkable
class Reads(Protocol):
    """A backend with the capability ``read``."""

    def downgrade(self, ask: Ask, deadline: float = math.inf) -> bool:
        """Turn the exclusive hold of *ask* into one of a reader, with the same token, in one step.

        The hold is acknowledged. As a reader it has another number: its grants may have used up its block.
        No writer comes between. Readers that are first in line enter. *ask.mode* is `EXCLUSIVE` still; from
        the answer on the engine asks with `READ`. False, and nothing is changed, if the hold is not *ask*'s.
        True if it has been turned already.
        """
