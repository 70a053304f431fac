"""The museum's locks by name, so that a shop can have each of them as its guard."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo_shop.configuration import Configuration
from demo_shop.museum import MuseumLock


class ProcessAnew:
    """A process lock that each request makes for itself. Its acquire() ignores whether it got the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def acquire(self) -> bool:
        self.lock.acquire(blocking=False)
        return True

    def release(self) -> None:
        self.lock.release()


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A lock of the museum, and its fault."""

    title: str
    fault: str
    #: Makes the lock of one name, for one purchase.
    lock: Callable[[Configuration, str], MuseumLock]


def redis_step(step: int) -> Callable[[Configuration, str], MuseumLock]:
    def make(shop: Configuration, name: str) -> MuseumLock:
        # Import the locks here, because a shop with another guard needs no redis-py.
        from demo_shop.museum import redis_locks

        made: MuseumLock = getattr(redis_locks, f"RedisStep{step}")(redis(shop.lock), name, shop.lock_ttl)
        return made

    return make


def zookeeper_unfair(shop: Configuration, name: str) -> MuseumLock:
    from demo_shop.museum.zookeeper_unfair import ZooKeeperUnfair

    return ZooKeeperUnfair(zookeeper(shop.lock), f"/{name}")


@functools.cache
def redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


@functools.cache
def zookeeper(url: str) -> Any:
    from urllib.parse import urlsplit

    from kazoo.client import KazooClient

    client = KazooClient(urlsplit(url).netloc)
    client.start()
    return client


EXHIBITS = {
    "process-anew": Exhibit(
        "process lock, made anew",
        "Each request makes a lock of its own, and nobody asks whether it was got. Everybody is inside.",
        lambda _, name: ProcessAnew(),
    ),
    "redis-step-0": Exhibit(
        "SETNX and DEL",
        "A loser gives up at once, and anybody can delete anybody's lock.",
        redis_step(0),
    ),
    "redis-step-1": Exhibit(
        "SETNX, retried",
        "A holder that outlives the expiry deletes the next one's lock, and so on down the line.",
        redis_step(1),
    ),
    "redis-step-2": Exhibit(
        "UUID as value",
        "A holder that outlives the expiry is not alone; between GET and DEL the lock may change hands.",
        redis_step(2),
    ),
    "redis-step-3": Exhibit(
        "renewed ten times",
        "Ten renewals come to an end, and between GET and EXPIRE the lock may change hands.",
        redis_step(3),
    ),
    "redis-step-4": Exhibit(
        "compare and delete in Lua",
        "A holder that calls a function which takes the same lock waits for itself.",
        redis_step(4),
    ),
    "redis-step-5": Exhibit(
        "entries counted by thread",
        "The count knows neither which lock it counts nor whether that is still held.",
        redis_step(5),
    ),
    "zookeeper-unfair": Exhibit(
        "one node, watched by all",
        "Each release wakes all waiters, and all but one in vain; the last to come may be let in first.",
        zookeeper_unfair,
    ),
}
