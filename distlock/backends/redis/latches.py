"""Latches in a Redis server. A script notifies the processes that watch a latch of its opening or deletion.

| key | value | lifetime |
|---|---|---|
| ``dl:2:{<latch>}:latch`` | hash: maker, total, left, ttl, time of making, counted parts | its ttl |
| ``dl:2:{<latch>}:watched`` | set: the processes that watch it | a minute after one of them looked last |
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

from distlock import clock
from distlock.backends.latches import LatchState
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.calls import BoundedCalls, ScriptCaller
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.failures import foreign, is_foreign, unavailable
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import command, hold_key
from distlock.backends.redis.subscription import Subscription

_SOURCE = (resources.files(__package__) / "lua" / "latch.lua").read_bytes()
_DIGEST = hashlib.sha1(_SOURCE, usedforsecurity=False).hexdigest()
#: The largest number of latches that one round trip reads.
_BATCH = 200
#: A process that watches looks again within this many seconds: see `distlock.locks.latch_waits`.
_WATCHES = 5.0

#: The arguments of the script: the action, the key of the latch, and the arguments of the action.
LatchArguments = tuple[str | int, ...]


class RedisLatches(BoundedCalls):
    """The part of `RedisBackend` that implements `distlock.backends.latches.Latches`."""

    process: str
    _address: RedisAddress
    _pool: Pool
    _caller: ScriptCaller
    _subscription: Subscription | None

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        (made,) = self._call_latches([latch_to_make(key, total, ttl, maker)], deadline)
        assert made is not None
        return made

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        (counted,) = self._call_latches([("count", key, part, by, life)], deadline)
        return counted

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        (deleted,) = self._call_latches([("delete", key, life)], deadline)
        return deleted is not None

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        deadline = self._by(deadline)
        if watch and self._subscription is not None:
            # Subscribe first: a notification before that would be lost.
            self._subscription.ensure_started(deadline)
            self._subscription.stay_until(clock.now() + _WATCHES)
        process = self.process if watch else ""
        seen: list[LatchState | None] = []
        for start in range(0, len(keys), _BATCH):
            asked = [("look", key, process) for key in keys[start : start + _BATCH]]
            seen += self._call_latches(asked, deadline)
        return seen

    def _call_latches(self, asked: Sequence[LatchArguments], deadline: float) -> list[LatchState | None]:
        """Return the script's answer to each of *asked*. Repeat the calls once if the connection was dead."""
        deadline = self._by(deadline)
        try:
            return self._exchange_latches(asked, deadline)
        except Stale:
            return self._exchange_latches(asked, deadline)

    def _exchange_latches(self, asked: Sequence[LatchArguments], deadline: float) -> list[LatchState | None]:
        replies = self._pool.exchange([encode_latch_call(one) for one in asked], deadline)
        if any(isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT") for reply in replies):
            replies = self._pool.exchange([encode_latch_call(one, by_source=True) for one in asked], deadline)
        return [self._latch_in(one, reply) for one, reply in zip(asked, replies, strict=True)]

    def _latch_in(self, asked: LatchArguments, reply: Any) -> LatchState | None:
        if isinstance(reply, ReplyError):
            if is_foreign(reply):
                raise foreign(self._address, [_latch_key(asked)])
            raise unavailable(self._address, reply)
        try:
            return latch_in(reply)
        except OSError:
            raise self._caller.drop_connections() from None


def latch_to_make(key: str, total: int, ttl: float, maker: str) -> LatchArguments:
    """Return the arguments that make a latch, for *ttl* seconds."""
    return "make", key, maker, total, math.ceil(ttl * 1000)


def latch_in(reply: Any) -> LatchState | None:
    """Return the latch in *reply*, or None if there is none. Raises OSError for any other reply."""
    if reply == []:
        return None
    try:
        maker, total, left, ms, life = reply
        return LatchState(maker.decode(), int(total), int(left), ms / 1000, life.decode())
    except (TypeError, ValueError, AttributeError):
        raise OSError("it answered something that was not asked") from None


def _latch_key(asked: LatchArguments) -> str:
    return f"{hold_key(str(asked[1]))}:latch"


def encode_latch_call(asked: LatchArguments, by_source: bool = False) -> bytes:
    """Encode a call of the script. *by_source*: for a server that does not know the script."""
    how: tuple[str | bytes, ...] = ("EVAL", _SOURCE) if by_source else ("EVALSHA", _DIGEST)
    return command(*how, 2, _latch_key(asked), f"{hold_key(str(asked[1]))}:watched", *asked)
