"""Latches in a Redis server. A script counts, and pushes to those that watch when it comes to 0.

| key | what it is | lives for |
|---|---|---|
| ``dl:2:{<latch>}:latch`` | hash: maker, total, left, ttl, when it was made, and what was counted | its ttl |
| ``dl:2:{<latch>}:watched`` | set: the processes that wait for it | a minute after one of them looked |
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import resources
from typing import Any

from distlock import clock
from distlock.backends.latches import LatchState
from distlock.backends.redis.address import Address
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.failures import foreign, is_foreign, unavailable
from distlock.backends.redis.listener import Listener
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.scripts import command, hold_key

_SOURCE = (resources.files(__package__) / "latch.lua").read_bytes()
_DIGEST = hashlib.sha1(_SOURCE, usedforsecurity=False).hexdigest()
#: How many are asked in one round trip.
_BATCH = 200
#: A process in which somebody waits looks again before that, seconds: see `distlock.locks.latch_waits`.
_WATCHES = 5.0
#: What is no reply of the script raises one of these.
NOT_ASKED = (TypeError, ValueError, AttributeError)

#: What the script is told, and of which latch.
Asked = tuple[str | int, ...]


class RedisLatches(ABC):
    """The part of `RedisBackend` for them."""

    process: str
    _address: Address
    _pool: Pool
    _calls: Calls
    _listener: Listener | None

    @abstractmethod
    def _by(self, deadline: float) -> float:
        """The end of a call that begins now and may last until *deadline*."""

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        (made,) = self._of_latches([to_make(key, total, ttl, maker)], deadline)
        assert made is not None
        return made

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        (counted,) = self._of_latches([("count", key, part, by, life)], deadline)
        return counted

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        (deleted,) = self._of_latches([("delete", key, life)], deadline)
        return deleted is not None

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        deadline = self._by(deadline)
        if watch and self._listener is not None:
            # What is pushed before it listens is lost.
            self._listener.start(deadline)
            self._listener.stay_until(clock.now() + _WATCHES)
        process = self.process if watch else ""
        seen: list[LatchState | None] = []
        for start in range(0, len(keys), _BATCH):
            asked = [("look", key, process) for key in keys[start : start + _BATCH]]
            seen += self._of_latches(asked, deadline)
        return seen

    def _of_latches(self, asked: Sequence[Asked], deadline: float) -> list[LatchState | None]:
        """What the script says to each of *asked*. To ask again changes nothing."""
        deadline = self._by(deadline)
        try:
            return self._ask_of_latches(asked, deadline)
        except Stale:
            return self._ask_of_latches(asked, deadline)

    def _ask_of_latches(self, asked: Sequence[Asked], deadline: float) -> list[LatchState | None]:
        replies = self._pool.exchange([written(one) for one in asked], deadline)
        if any(isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT") for reply in replies):
            replies = self._pool.exchange([written(one, by_source=True) for one in asked], deadline)
        return [self._latch_in(one, reply) for one, reply in zip(asked, replies, strict=True)]

    def _latch_in(self, asked: Asked, reply: Any) -> LatchState | None:
        if isinstance(reply, ReplyError):
            if is_foreign(reply):
                raise foreign(self._address, [_place(asked)])
            raise unavailable(self._address, reply)
        try:
            return state_in(reply)
        except NOT_ASKED:
            raise self._calls.not_asked() from None


def to_make(key: str, total: int, ttl: float, maker: str) -> Asked:
    return "make", key, maker, total, math.ceil(ttl * 1000)


def state_in(reply: Any) -> LatchState | None:
    """What the script says of a latch; None: there is none. Raises one of `NOT_ASKED`."""
    if reply == []:
        return None
    maker, total, left, ms, life = reply
    return LatchState(maker.decode(), int(total), int(left), ms / 1000, life.decode())


def _place(asked: Asked) -> str:
    return f"{hold_key(str(asked[1]))}:latch"


def written(asked: Asked, by_source: bool = False) -> bytes:
    """The call of the script; *by_source*: for a server that has forgotten it."""
    how: tuple[str | bytes, ...] = ("EVAL", _SOURCE) if by_source else ("EVALSHA", _DIGEST)
    return command(*how, 2, _place(asked), f"{hold_key(str(asked[1]))}:watched", *asked)
