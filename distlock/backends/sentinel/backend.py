"""Locks in the Redis server that sentinels call the primary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from distlock.backends.redis import RedisBackend
from distlock.backends.redis.connection import Connection
from distlock.backends.redis.credentials import credentials_for
from distlock.backends.sentinel.address import SentinelAddress
from distlock.backends.sentinel.connection import PrimaryConnection
from distlock.backends.sentinel.sentinels import Sentinels


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
        self._sentinels = Sentinels(self._address, self._io_timeout, self._client_name, self._moved)
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(PrimaryConnection, self._sentinels, credentials, self._client_name)

    def _moved(self) -> None:
        """Holds that the new primary has not heard of are lost, and who waits has to queue there."""
        if self._sink is not None:
            self._sink.doubt()
