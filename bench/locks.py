"""What is measured: locks of ours, and what one would use instead. Each is made of a URL, in each process."""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import distlock
from distlock.backends.base import Acquired, LockRequest

#: Makes a lock of a name, for ``with``.
Lock = Callable[[str], AbstractContextManager[Any]]

#: Seconds. Nobody waits in vain for so long.
PATIENCE = 60.0
#: Connections of a client of redis-py, which has one for each of its threads.
MOST = 1000
#: Of a lock that nobody renews, seconds.
TTL = 10


def ours(url: str) -> Lock:
    return distlock.connect(url, prefix="bench", timeout=PATIENCE).lock


def on_the_push(url: str) -> Lock:
    """As guards with a transaction do: a body begins when the lock is pushed to it."""
    locks = distlock.connect(url, prefix="bench", timeout=PATIENCE)
    return lambda name: locks.lock(name, on_push=True)


def with_short_leases(url: str) -> Lock:
    return distlock.connect(url, prefix="bench", timeout=PATIENCE, ttl=2.0).lock


class Silence:
    """Hears nothing: nobody waits."""

    def notified(self, key: str) -> None: ...

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None: ...

    def lost(self, key: str, token: str) -> None: ...

    def release_requested(self, key: str, token: str) -> None: ...

    def missed_notifications(self) -> None: ...

    def reconnected(self) -> None: ...


def our_backend(url: str) -> Lock:
    """What is below the engine: the scripts, the connection, and what speaks to it."""
    from distlock.backends.redis.backend import RedisBackend

    backend = RedisBackend(url)
    backend.open(Silence())

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        request = LockRequest(f"bench:{name}", secrets.token_hex(16), TTL, span=64)
        assert isinstance(backend.request(request), Acquired), "It is for a lock that nobody else wants."
        yield
        backend.release(request)

    return lock


def no_lock(url: str) -> Lock:
    """What the checks have to find."""
    return lambda name: nullcontext()


def redis_py(url: str) -> Lock:
    import redis

    client = redis.Redis.from_url(url, max_connections=MOST)
    return lambda name: client.lock(name, timeout=TTL, blocking_timeout=PATIENCE)


def python_redis_lock(url: str) -> Lock:
    import redis
    import redis_lock

    client = redis.Redis.from_url(url, max_connections=MOST)
    return lambda name: redis_lock.Lock(client, name, expire=TTL)


def pottery(url: str) -> Lock:
    import redis
    from pottery import Redlock

    client = redis.Redis.from_url(url, max_connections=MOST)
    return lambda name: Redlock(key=name, masters={client}, auto_release_time=TTL)


def sherlock(url: str) -> Lock:
    import redis
    from sherlock import RedisLock

    client = redis.Redis.from_url(url, max_connections=MOST)
    return lambda name: RedisLock(name, client=client, expire=TTL, timeout=PATIENCE)


def django_redis(url: str) -> Lock:
    from django.conf import settings
    from django.core.cache import caches

    if not settings.configured:
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{url}?max_connections={MOST}"}
        settings.configure(CACHES={"default": cache})

    def lock(name: str) -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = caches["default"].lock(  # type: ignore[attr-defined]
            name, timeout=TTL, blocking_timeout=PATIENCE
        )
        return made

    return lock


def redis_floor(url: str) -> Lock:
    """Two commands, each awaited, on a bare connection: SET NX PX, and a script that deletes what is ours."""
    import redis

    client = redis.Redis.from_url(url, max_connections=MOST)
    delete = client.script_load(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
    )
    here = threading.local()
    numbers = itertools.count()

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        try:
            connection = here.connection
        except AttributeError:
            connection = here.connection = client.connection_pool.make_connection()
        token = str(next(numbers))
        connection.send_command("SET", name, token, "NX", "PX", TTL * 1000)
        assert connection.read_response(), "The floor is for a lock that nobody else wants."
        yield
        connection.send_command("EVALSHA", delete, 1, name, token)
        connection.read_response()

    return lock


def bare_queue(url: str) -> Lock:
    from bench.bare_queue import caller

    return caller(url).lock


def kazoo(url: str) -> Lock:
    client = started(url)
    return lambda name: client.Lock(f"/bench/{name}")


def kazoo_floor(url: str) -> Lock:
    """A node is created and deleted, each awaited: what no lock on ZooKeeper can do without."""
    client = started(url)
    client.ensure_path("/bench/floor")

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        path = client.create(f"/bench/floor/{name}-", ephemeral=True, sequence=True)
        yield
        client.delete(path)

    return lock


def flock(url: str) -> Lock:
    """No fence, no time-out, no order, and a child that lives on keeps it."""
    directory = Path(f"{url.removeprefix('file://')}-flock")
    directory.mkdir(exist_ok=True)

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    return lock


def started(url: str) -> Any:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=url.removeprefix("zookeeper://").partition("/")[0])
    client.start()
    return client


#: By the name that the tables have. Each is made anew in each process, by this name.
LOCKS: dict[str, Callable[[str], Lock]] = {
    "distlock": ours,
    "distlock, on the push": on_the_push,
    "distlock, ttl=2": with_short_leases,
    "distlock, its backend alone": our_backend,
    "no lock": no_lock,
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
    "pottery": pottery,
    "sherlock": sherlock,
    "django-redis": django_redis,
    "two bare commands": redis_floor,
    "a bare queue": bare_queue,
    "kazoo": kazoo,
    "flock": flock,
    "bare create + delete": kazoo_floor,
}
