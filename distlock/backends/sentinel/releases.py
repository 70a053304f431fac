"""What was released at a primary, and may be held still where another one takes its place.

For a second or two after `SENTINEL FAILOVER` has promoted a replica nobody has heard of it, and the former
primary goes on. What is released there meanwhile the new one would keep for its ttl.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import ScriptCaller
from distlock.backends.redis.pending_releases import PendingRelease, PendingReleases
from distlock.backends.redis.pool import Pool

#: For how long a release is remembered, seconds, and how many are.
_RECENT, _MOST = 5.0, 5000
#: How many are repeated in one round trip: as with renewals, others have to wait meanwhile.
_BATCH = 500


class Releases(PendingReleases):
    """The releases of one process. They may be repeated, because only the token of a hold releases it."""

    def __init__(self, calls: ScriptCaller, pool: Pool) -> None:
        super().__init__(calls, pool)
        self._recent: deque[tuple[float, LockRequest]] = deque(maxlen=_MOST)

    def post(
        self,
        request: LockRequest,
        told: Callable[[bool | None], None],
        deadline: float,
        send: Callable[[bytes, PendingRelease, float], bool] | None = None,
    ) -> bool:
        sent = super().post(request, told, deadline, send)
        if sent:
            self._recent.append((clock.now(), request))
        return sent

    def forget(self, request: LockRequest) -> None:
        super().forget(request)
        self._recent.append((clock.now(), request))

    def repeat_recent(self, deadline: float) -> None:
        """Release once more what was released lately. Raises `BackendUnavailable`."""
        since = clock.now() - _RECENT
        recent = [request for at, request in tuple(self._recent) if at >= since]
        for script in dict.fromkeys(scripts.RELEASE[request.mode] for request in recent):
            requests = [request for request in recent if scripts.RELEASE[request.mode] is script]
            for start in range(0, len(requests), _BATCH):
                self._caller.release(requests[start : start + _BATCH], deadline)
