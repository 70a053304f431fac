"""How long one may wait: the rules of `threading.Lock`."""

from __future__ import annotations

import math
import threading


def check_timeout(seconds: float) -> float:
    """Return *seconds* if one can wait for them. The errors are those of `threading.Lock`."""
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("timeout value must be a non-negative number")
    if seconds > threading.TIMEOUT_MAX and seconds != math.inf:
        raise OverflowError("timeout value is too large")
    return float(seconds)
