"""The instances of a scene, whose locks are an exhibit or distlock, over a network that can be slow."""

from __future__ import annotations

import contextlib
import socket
import threading
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


class SlowProxy:
    """A proxy for the server at *port* that can hold back answers, as a slow network does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._forwarding: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def hold(self) -> None:
        self._open.clear()

    def abandon(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.abandon()
        end(self._listener)
        self._accepting.join()
        # No new connections come after this.
        for one in self._sockets:
            end(one)
        for thread in self._forwarding:
            thread.join()
        for one in [self._listener, *self._sockets]:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                for way in ((client, server, False), (server, client, True)):
                    self._forwarding.append(threading.Thread(target=self._forward, args=way, daemon=True))
                    self._forwarding[-1].start()

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers:
                    self._open.wait()
                target.sendall(data)
        end(source)
        end(target)


def end(one: socket.socket) -> None:
    """Shut a socket down, because close() would not wake a thread that is blocked in the socket."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


PREFIX = "museum"
#: The default lifetime of a lock, seconds: longer than any visit.
LONG = 10.0
RedisLock = Callable[[Redis, str, float], MuseumLock]


class Instance(Protocol):
    """One instance of a shop, with its own connections through its own proxy."""

    wire: SlowProxy

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock: ...

    def taken(self, name: str) -> bool:
        """Return whether the lock service knows of a holder."""
        ...

    def close(self) -> None: ...


class InstanceMaker:
    """Makes the instances of a scene on one lock service. Leaving the ``with`` closes them."""

    def __init__(self, url: str, make: Callable[[str], Instance]) -> None:
        self.url, self._make = url, make
        self._instances: list[Instance] = []
        # Each run has its own names, so that it does not find locks that another run has left.
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
    """An instance whose locks are an exhibit on Redis, made by *make*."""

    def __init__(self, url: str, make: RedisLock) -> None:
        self.wire = SlowProxy(urlsplit(url).port or 6379)
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
    """An instance whose locks are the exhibit on ZooKeeper."""

    def __init__(self, url: str) -> None:
        self.wire = SlowProxy(urlsplit(url).port or 2181)
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


class DistlockInstance:
    """The control: an instance with locks of distlock. *reentrant*: the scene nests locks."""

    def __init__(self, url: str, reentrant: bool = False) -> None:
        service = urlsplit(url)
        self.wire = SlowProxy(service.port or 0)
        beyond = service._replace(netloc=f"127.0.0.1:{self.wire.port}").geturl()
        self.locks = distlock.connect(beyond, prefix=PREFIX)
        self._lock: Callable[..., distlock.Lock] = self.locks.lock
        if reentrant:
            self._lock = self.locks.rlock

    def lock(self, name: str, expiry: float = LONG) -> MuseumLock:
        return DistlockExhibit(self._lock(name, ttl=expiry))

    def taken(self, name: str) -> bool:
        return self.locks.lock(name).locked()

    def close(self) -> None:
        self.locks.close()
        self.wire.close()


class DistlockExhibit:
    """A lock of distlock, with the two methods of the exhibits."""

    def __init__(self, lock: distlock.Lock) -> None:
        self.lock = lock
        self.grant: distlock.Grant | None = None

    def acquire(self) -> bool:
        self.grant = self.lock.acquire()
        if self.grant is None:
            # A lock that refuses all buyers would do no damage, so a refusal counts as a failure here.
            raise TimeoutError("distlock refused a buyer.")
        return True

    def release(self) -> None:
        # Some scenes release a lock that they do not hold, which must do no harm.
        with contextlib.suppress(distlock.NotHeld):
            self.lock.release()


def on_redis(make: RedisLock) -> Callable[[str], InstanceMaker]:
    return lambda url: InstanceMaker(url, lambda url: ExhibitOnRedis(url, make))


def on_zookeeper(url: str) -> InstanceMaker:
    return InstanceMaker(url, ExhibitOnZooKeeper)


def control(url: str, reentrant: bool = False) -> InstanceMaker:
    return InstanceMaker(url, lambda url: DistlockInstance(url, reentrant))
