"""In which modes a name can be wanted."""

from __future__ import annotations

from typing import Final, Literal

#: All of it, to share it with other readers, or some of its permits.
Mode = Literal["exclusive", "read", "permit"]
EXCLUSIVE: Final = "exclusive"
READ: Final = "read"
PERMIT: Final = "permit"

#: The kinds of names. A lock and a semaphore of one name are two things.
Kind = Literal["lock", "semaphore", "latch"]
LOCK: Final = "lock"
SEMAPHORE: Final = "semaphore"
LATCH: Final = "latch"
KINDS: Final[tuple[Kind, ...]] = (LOCK, SEMAPHORE, LATCH)
