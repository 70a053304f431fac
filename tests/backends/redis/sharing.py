"""What the tests ask with of what several have at once: readers, and permits."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from distlock.backends.base import PERMIT, READ, LockRequest
from tests.backends.redis.contender import LONG, ask, some_key
from tests.redis_server import RedisServer
from tests.stored import hold_key


def read(key: str = "", ttl: float = LONG, wait: bool = True) -> LockRequest:
    return LockRequest(key or some_key(), secrets.token_hex(16), ttl, 1, wait, READ)


def permit(
    key: str = "", limit: int = 2, permits: int = 1, ttl: float = LONG, wait: bool = True
) -> LockRequest:
    return LockRequest(key or some_key(), secrets.token_hex(16), ttl, 1, wait, PERMIT, limit, permits)


#: One that shares a key, and one that has to wait until it is free of it.
Make = Callable[[str], LockRequest]
PAIRS = {"readers": (read, ask), "permits": (permit, lambda key: permit(key, 2, 2))}
sharing = pytest.mark.parametrize(("share", "outside"), PAIRS.values(), ids=PAIRS)


def keys(server: RedisServer, key: str) -> set[str]:
    """What is left of a lock, without its counter."""
    place = hold_key(key)
    return {one.decode().removeprefix(place) for one in server.client.keys(f"{place}*")} - {":fence"}
