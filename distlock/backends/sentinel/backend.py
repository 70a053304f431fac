"""Locks in the Redis server that sentinels call the primary."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

from distlock.backends.redis import RedisBackend
from distlock.backends.redis.connection import Connection
from distlock.backends.redis.credentials import credentials_for
from distlock.backends.sentinel.address import SentinelAddress
from distlock.backends.sentinel.connection import PrimaryConnection
from distlock.backends.sentinel.sentinels import Sentinels
from distlock.backends.weak_sink import WeakSink


class SentinelBackend(RedisBackend):
    """One process's locks in the primary that the sentinels at *url* name.

    *url*: ``redis+sentinel://[user:password@]host[:port][,host[:port]…]/name[/db]``, or ``rediss+sentinel://``.
    The options are those of `RedisBackend`; *io_timeout* bounds the search for the primary, too.
    """

    _read = SentinelAddress
    _address: SentinelAddress

    def close(self) -> None:
        sentinels = self._sentinels
        super().close()
        sentinels.close()

    def _connections(self) -> Callable[[], Connection]:
        # Holds that a new primary has not heard of are lost, and those that wait have to queue there.
        moved = _tell_nobody if self._sink is None else WeakSink(self._sink).doubt
        self._sentinels = Sentinels(self._address, self._io_timeout, self._client_name, moved)
        # A client that is dropped without a close leaves no thread either.
        weakref.finalize(self, self._sentinels.dismiss).atexit = False
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(PrimaryConnection, self._sentinels, credentials, self._client_name)


def _tell_nobody() -> None:
    pass
