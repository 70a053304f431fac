"""The distributed lock, taken and given back by a decorator that knows nothing of transactions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import distlock

if TYPE_CHECKING:
    from demo_shop.configuration import Configuration


class PlainLock:
    """One name's lock, for one purchase."""

    def __init__(self, client: distlock.Locks, name: str) -> None:
        self.lock = client.lock(name)

    def acquire(self) -> bool:
        try:
            return self.lock.acquire() is not None
        except distlock.TooManyWaiters:
            return False

    def release(self) -> None:
        self.lock.release()


def plain_lock(shop: Configuration, name: str) -> PlainLock:
    return PlainLock(_client(shop.lock, shop.lock_ttl), name)


@functools.cache
def _client(url: str, ttl: float) -> distlock.Locks:
    # As `Configuration.distlock` has it: what differs is only when it lets go.
    return distlock.connect(url, prefix="shop", ttl=ttl)
