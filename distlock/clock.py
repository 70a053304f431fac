"""The clock of leases. It never jumps. On Linux, it goes on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

if hasattr(time, "CLOCK_BOOTTIME"):
    #: Seconds since boot, suspended time included. Each lock calls this a dozen times, so it is made of C
    #: functions only.
    now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
