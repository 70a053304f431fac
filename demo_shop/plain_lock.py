"""The distributed lock, taken and given back by a decorator that knows nothing of transactions."""

from __future__ import annotations

import functools

import distlock
from demo_shop.configuration import Configuration
from distlock.lock import Lock


def plain_lock(shop: Configuration, name: str) -> Lock:
    return _client(shop.lock, shop.lock_ttl).lock(name)


@functools.cache
def _client(url: str, ttl: float) -> distlock.Locks:
    # As `Configuration.distlock` has it: what differs is only when it lets go.
    return distlock.connect(url, prefix="shop", ttl=ttl, timeout=20, max_waiters=64)
