"""What a backend owes beyond `distlock.backends.base` if several may hold a key at once.

**Readers** (`Capabilities.read`). A key is held by one request in the mode `EXCLUSIVE`, or by any number in
the mode `READ`. All requests for it stand in one queue, first come first served: a reader enters at once
where no writer holds it and nobody waits, and never passes one that waits. When the key is given back, the
first in line gets it; if that is a reader, the readers right behind it do, too, up to the first writer.
Each reader has a lease of its own. Readers reserve no numbers: a reader's `Acquired.number` is not smaller
than any that was given out for the key before it, and smaller than those of the holds after it;
`raise_fence` lifts it, and the numbers of the writers after it, as it does for a writer.

**Permits** (`Capabilities.permits`). A key of permits is never asked for in another mode. A request is
granted when it is the first in line and its `LockRequest.permits` and those that are out are no more than
its own `LockRequest.limit`. Each request has its own: during a deployment they may differ. One that waits
with a smaller limit holds up those behind it, as any other that does not fit. Each hold has a lease of its
own, and numbers of no meaning.

`request`, `cancel`, `renew`, `release` and the sink do for them what they do for an exclusive hold. A
reader or a permit that was handed off is acknowledged by its next `request`; unacknowledged it lives for a
window.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from distlock.backends.base import LockRequest


@runtime_checkable
class Reads(Protocol):
    """A backend with the capability ``read``."""

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """Turn the exclusive hold of *request* into one of a reader, with the same token, in one step.

        The hold is acknowledged. As a reader it has another number: its grants may have used up its block.
        No writer comes between. Readers that are first in line enter. *request.mode* is `EXCLUSIVE` still;
        from the answer on the engine uses `READ`. False, and nothing is changed, if the hold is not
        *request*'s. True if it has been turned already.
        """
