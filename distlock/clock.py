"""The clock of leases. It never jumps, and goes on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

if hasattr(time, "CLOCK_BOOTTIME"):
    #: Seconds since boot, suspended time included. It is a C function: each lock calls it a dozen times.
    now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
