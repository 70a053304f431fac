"""How an acquisition that was not granted is counted."""

from __future__ import annotations

from distlock.errors import BackendUnavailable, LockTimeout, TooManyWaiters

GRANTED = "granted"
TIMED_OUT = "timed_out"
REFUSED = "refused"
UNAVAILABLE = "unavailable"
#: Interrupted, cancelled, or never allowed.
FAILED = "failed"
RESULTS = (GRANTED, TIMED_OUT, REFUSED, UNAVAILABLE, FAILED)

#: Seconds: from a free lock on the same host to the longest that anybody waits.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def result_of(error: BaseException | None) -> str:
    """The result of an acquisition that *error* ended; None: the lock stayed taken."""
    if error is None or isinstance(error, LockTimeout):
        return TIMED_OUT
    if isinstance(error, TooManyWaiters):
        return REFUSED
    return UNAVAILABLE if isinstance(error, BackendUnavailable) else FAILED
