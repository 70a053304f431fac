"""Where a run gets its locks from: the exhibit, or distlock on the same service. It can't tell which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit
from uuid import uuid4

from kazoo.client import KazooClient
from redis import Redis

import distlock
from demo_shop.museum import MuseumLock
from demo_shop.museum.zookeeper_unfair import ZooKeeperUnfair
from loadtest.museum.wire import Wire

PREFIX = "museum"
#: Seconds that a lock lives unless the run says otherwise: longer than any body.
LONG = 10.0
RedisLock = Callable[[Redis, str, float], MuseumLock]


class Instance(Protocol):
    """One instance of a shop, with connections of its own over a wire of its own."""

    wire: Wire

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock: ...

    def taken(self, name: str) -> bool:
        """Whether the service knows of a holder."""
        ...

    def close(self) -> None: ...


class Bench:
    """Instances on one service. Closed by ``with``."""

    def __init__(self, url: str, make: Callable[[str], Instance]) -> None:
        self.url, self._make = url, make
        self._instances: list[Instance] = []
        # No run meets what another one left on the service.
        self._run = uuid4().hex[:8]

    def instance(self) -> Instance:
        made = self._make(self.url)
        self._instances.append(made)
        return made

    def name(self, product: int = 1) -> str:
        return f"product_{self._run}_{product}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for instance in self._instances:
            instance.close()


class ExhibitOnRedis:
    def __init__(self, url: str, make: RedisLock) -> None:
        self.wire = Wire(urlsplit(url).port or 6379)
        self.redis = Redis(port=self.wire.port)
        self._make = make

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock:
        return self._make(self.redis, name, expiry)

    def taken(self, name: str) -> bool:
        return bool(self.redis.exists(name))

    def close(self) -> None:
        self.redis.close()
        self.wire.close()


class ExhibitOnZooKeeper:
    def __init__(self, url: str) -> None:
        self.wire = Wire(urlsplit(url).port or 2181)
        self.zookeeper = KazooClient(f"127.0.0.1:{self.wire.port}")
        self.zookeeper.start()

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock:
        return ZooKeeperUnfair(self.zookeeper, f"/{name}")

    def taken(self, name: str) -> bool:
        return bool(self.zookeeper.exists(f"/{name}"))

    def close(self) -> None:
        self.zookeeper.stop()
        self.zookeeper.close()
        self.wire.close()


class Distlock:
    """The control. *reentrant*: what the run nests."""

    def __init__(self, url: str, reentrant: bool = False) -> None:
        service = urlsplit(url)
        self.wire = Wire(service.port or 0)
        beyond = service._replace(netloc=f"127.0.0.1:{self.wire.port}").geturl()
        self.locks = distlock.connect(beyond, prefix=PREFIX)
        self._lock: Callable[..., distlock.Lock] = self.locks.lock
        if reentrant:
            self._lock = self.locks.rlock

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock:
        return Ours(self._lock(name, ttl=expiry))

    def taken(self, name: str) -> bool:
        return self.locks.lock(name).locked()

    def close(self) -> None:
        self.locks.close()
        self.wire.close()


class Ours:
    """A lock of distlock, with the two methods that the exhibits have."""

    def __init__(self, lock: distlock.Lock) -> None:
        self.lock = lock
        self.grant: distlock.Grant | None = None

    def acquire(self) -> bool:
        self.grant = self.lock.acquire()
        if self.grant is None:
            # A lock that refuses everybody does no damage either. In the runs it has to serve all of them.
            raise TimeoutError("distlock refused a buyer.")
        return True

    def release(self) -> None:
        # A caller that releases what it does not hold is told so. Here it is enough that it does no harm.
        with contextlib.suppress(distlock.NotHeld):
            self.lock.release()


def on_redis(make: RedisLock) -> Callable[[str], Bench]:
    return lambda url: Bench(url, lambda url: ExhibitOnRedis(url, make))


def on_zookeeper(url: str) -> Bench:
    return Bench(url, ExhibitOnZooKeeper)


def control(url: str, reentrant: bool = False) -> Bench:
    return Bench(url, lambda url: Distlock(url, reentrant))
