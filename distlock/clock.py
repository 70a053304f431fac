"""Time as leases need it: seconds that never jump, and that go on while the machine is suspended."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds since boot, suspends included: a lease does not wait for a sleeping machine."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
