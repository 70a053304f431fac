"""Locks in the Redis server that sentinels call the primary."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from distlock.backends.redis import RedisBackend
from distlock.backends.redis.blocking import credentials_for
from distlock.backends.redis.connection import Connection
from distlock.backends.sentinel.address import SentinelAddress
from distlock.backends.sentinel.connection import PrimaryConnection
from distlock.backends.sentinel.releases import Releases
from distlock.backends.sentinel.sentinels import Sentinels
from distlock.errors import BackendUnavailable

#: How long those have to end whom the former primary let in before the other one was known, seconds.
_MEANWHILE = 1.0


class SentinelBackend(RedisBackend):
    """One process's locks in the primary that the sentinels at *url* name.

    *url*: ``redis+sentinel://[user:password@]host[:port][,host[:port]…]/name[/db]``, or
    ``rediss+sentinel://``. The options are those of `RedisBackend`; *io_timeout* bounds the search for the
    primary, too.
    """

    _read = SentinelAddress
    _address: SentinelAddress
    _make_releases = Releases
    _releases: Releases

    def close(self) -> None:
        sentinels = self._sentinels
        super().close()
        sentinels.close()

    def _connections(self) -> Callable[[], Connection]:
        moved = partial(_tell, weakref.ref(self))
        self._sentinels = Sentinels(self._address, self._io_timeout, self._client_name, moved)
        # A client that is dropped without a close leaves no thread either.
        weakref.finalize(self, self._sentinels.dismiss).atexit = False
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(PrimaryConnection, self._sentinels, credentials, self._client_name)

    def _follow(self) -> None:
        """There is a new primary."""
        # Holds that it has not heard of are lost, and those that wait have to queue there.
        if self._sink is not None:
            self._sink.missed_notifications()
        # The thread that tells it may be the one that the way there needs. If there can be no other one,
        # what was released ends there with its ttl.
        with suppress(RuntimeError):
            threading.Thread(target=self._release_again, name="distlock-redis-releasing", daemon=True).start()

    def _release_again(self) -> None:
        # Until then these holds keep others out whom the new primary would let in beside those.
        if self._sentinels.closing.wait(_MEANWHILE):
            return
        # If it can't be reached the holds end with their ttl.
        with suppress(BackendUnavailable):
            self._releases.repeat_recent(self._by(math.inf))


def _tell(backend: weakref.ref[SentinelBackend]) -> None:
    living = backend()
    if living is not None:
        living._follow()
