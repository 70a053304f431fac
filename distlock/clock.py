"""Time as leases need it: seconds that never jump, and that go on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

if hasattr(time, "CLOCK_BOOTTIME"):
    #: Seconds since boot, suspends included: a lease does not wait for a sleeping machine. Without a frame of
    #: Python, for each lock asks a dozen times.
    now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
