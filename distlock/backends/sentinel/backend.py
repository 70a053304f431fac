"""Locks in the Redis server that sentinels call the primary, and the connection that finds it."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import RedisBackend, scripts
from distlock.backends.redis.blocking import Credentials, credentials_for
from distlock.backends.redis.calls import ScriptCaller
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.failures import Remedied
from distlock.backends.redis.pending_releases import PendingRelease, PendingReleases
from distlock.backends.redis.pool import Pool
from distlock.backends.redis.scripts import command
from distlock.backends.sentinel.sentinels import Primary, SentinelAddress, Sentinels, may_pass
from distlock.errors import BackendUnavailable

#: Seconds for which the new primary keeps holds that were released at the former one. The former primary may
#: have granted those locks again, and their holders have this time to learn of the new primary.
_LATE_GRANTS = 1.0

#: Seconds between two attempts to connect.
_PAUSE = 0.05
#: The shortest time of an attempt, in seconds. Longer ones take half of the remaining time, to leave time for
#: another.
_SHORTEST = 0.25
#: The errors of a former primary, or of one without enough replicas.
_NOT_PRIMARY = ("READONLY", "NOREPLICAS", "MASTERDOWN")

_ANNOUNCED = (
    "If it is gone, another one takes its place when the sentinels have noticed. If it runs, it can't be "
    "reached from here by that address: have it announce another one (replica-announce-ip, "
    "replica-announce-port)."
)
_AGAIN = "The next call asks its sentinels again."

#: Seconds for which a release is remembered, and how many releases are remembered.
_RECENT, _MOST = 5.0, 5000
#: How many releases one round trip repeats. Other clients have to wait while the server carries them out.
_BATCH = 500


class PrimaryConnection(RedisConnection):
    """A connection to the primary.

    To connect, it asks the sentinels again and again, until there is a primary or its deadline is over.
    """

    primary: Primary | None = None

    def __init__(self, sentinels: Sentinels, credentials: Credentials | None, client_name: str) -> None:
        self._sentinels = sentinels
        nowhere = Primary(sentinels.address)
        super().__init__(nowhere.address, nowhere.resolver, credentials, client_name)

    def connect(self, deadline: float) -> None:
        failure: OSError | None = None
        while True:
            try:
                self._attempt(deadline)
                return
            except OSError as error:
                # A timeout says less than the failure before it.
                if failure is None or not isinstance(error, TimeoutError):
                    failure = error
                if not may_pass(error):
                    raise
            if clock.now() + _PAUSE >= deadline or self._sentinels.closing.wait(_PAUSE):
                raise failure

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies = super().ask(commands, deadline)
        for reply in replies:
            if isinstance(reply, ReplyError) and any(word in str(reply) for word in _NOT_PRIMARY):
                # The caller takes this error for a broken connection, and connects to the new primary.
                raise Remedied(f"{self._address.shown} is no primary any more: {reply}", _AGAIN)
        return replies

    def _attempt(self, deadline: float) -> None:
        primary = self._sentinels.find(self, deadline)
        self.disconnect()
        # Begin anew, because an earlier attempt may have left half a reply.
        super().__init__(primary.address, primary.resolver, self._credentials, self._client_name)
        now = clock.now()
        ends = min(deadline, now + max(_SHORTEST, (deadline - now) / 2))
        try:
            super().connect(ends)
            (role,) = super().ask([command("ROLE")], ends)
        except OSError as error:
            if not may_pass(error):
                raise
            text = f"{primary.address.shown}, which its sentinels call the primary: {error}"
            raise Remedied(text, _ANNOUNCED) from error
        if isinstance(role, ReplyError):
            raise role
        if role[0] != b"master" or self._sentinels.primary is not primary:
            raise Remedied(f"{primary.address.shown} is not the primary (any more)", _AGAIN)


class RecentReleases(PendingReleases):
    """The releases of one process, which can be repeated at a new primary.

    For a second or two after `SENTINEL FAILOVER` has promoted a replica, clients still use the former
    primary. Holds that they release there stay at the new primary until their ttl ends. A repeated release
    ends no other hold, because it needs the token.
    """

    def __init__(self, calls: ScriptCaller, pool: Pool) -> None:
        super().__init__(calls, pool)
        self._recent: deque[tuple[float, LockRequest]] = deque(maxlen=_MOST)

    def post(
        self,
        request: LockRequest,
        notify: Callable[[bool | None], None],
        deadline: float,
        send: Callable[[bytes, PendingRelease, float], bool] | None = None,
    ) -> bool:
        sent = super().post(request, notify, deadline, send)
        if sent:
            self._recent.append((clock.now(), request))
        return sent

    def forget(self, request: LockRequest) -> None:
        super().forget(request)
        self._recent.append((clock.now(), request))

    def repeat_recent(self, deadline: float) -> None:
        """Repeat the releases of the last seconds. Raises `BackendUnavailable`."""
        since = clock.now() - _RECENT
        recent = [request for at, request in tuple(self._recent) if at >= since]
        for script in dict.fromkeys(scripts.RELEASE[request.mode] for request in recent):
            requests = [request for request in recent if scripts.RELEASE[request.mode] is script]
            for start in range(0, len(requests), _BATCH):
                self._caller.release(requests[start : start + _BATCH], deadline)


class SentinelBackend(RedisBackend):
    """One process's locks in the primary that the sentinels at *url* name.

    *url*: ``redis+sentinel://[user:password@]host[:port][,host[:port]…]/name[/db]``, or
    ``rediss+sentinel://``. The options are those of `RedisBackend`; *io_timeout* bounds the search for the
    primary, too.
    """

    _read = SentinelAddress
    _address: SentinelAddress
    _make_releases = RecentReleases
    _releases: RecentReleases

    def close(self) -> None:
        sentinels = self._sentinels
        super().close()
        sentinels.close()

    def _connections(self) -> Callable[[], RedisConnection]:
        moved = partial(_follow_new_primary, weakref.ref(self))
        self._sentinels = Sentinels(self._address, self._io_timeout, self._client_name, moved)
        # Ends the thread of a backend that is dropped without close().
        weakref.finalize(self, self._sentinels.dismiss).atexit = False
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(PrimaryConnection, self._sentinels, credentials, self._client_name)

    def _follow(self) -> None:
        """Handle a change of the primary."""
        # Holds that were not replicated are lost, and waiters have to queue at the new primary.
        if self._sink is not None:
            self._sink.missed_notifications()
        # A new thread repeats the releases, because a connection may need the current one. If no thread
        # can be started, the released holds end with their ttl.
        with suppress(RuntimeError):
            threading.Thread(target=self._release_again, name="distlock-redis-releasing", daemon=True).start()

    def _release_again(self) -> None:
        # Before that, a repeated release could let the new primary grant a lock that the former one has
        # granted again.
        if self._sentinels.closing.wait(_LATE_GRANTS):
            return
        # If the new primary can't be reached, the holds end with their ttl.
        with suppress(BackendUnavailable):
            self._releases.repeat_recent(self._by(math.inf))


def _follow_new_primary(backend: weakref.ref[SentinelBackend]) -> None:
    living = backend()
    if living is not None:
        living._follow()
