"""The locks that are measured, by their names in the tables: ours, their peers, and floors below them.

A function makes each kind of lock from a URL, and imports the peer's library only then.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis

import distlock
from distlock.backends.base import Acquired, Capabilities, LockRequest, Sink

#: A function that returns a context manager for a name.
Lock = Callable[[str], AbstractContextManager[Any]]

#: A caller waits at most this many seconds. No measured wait takes so long.
PATIENCE = 60.0
#: The most connections of a client of redis-py, which needs one for each thread.
MOST = 1000
#: The ttl of peers' locks, which are not renewed, seconds.
TTL = 10

ENTER_QUEUE = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 10000) then return 1 end
redis.call('rpush', KEYS[2], ARGV[1])
return 0
"""
LEAVE_QUEUE = """
local next = redis.call('lpop', KEYS[2])
if not next then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], next, 'PX', 10000)
return redis.call('lpush', 'wake:' .. next, 1)
"""
#: The timeout of BLPOP, seconds.
BLPOP_SECONDS = "60"


def ours(url: str) -> Lock:
    return distlock.connect(url, prefix="bench", timeout=PATIENCE).lock


def on_the_push(url: str) -> Lock:
    """Return locks whose holder begins on the push, as guards with a transaction do."""
    locks = distlock.connect(url, prefix="bench", timeout=PATIENCE)
    return lambda name: locks.lock(name, on_push=True)


def with_short_leases(url: str) -> Lock:
    return distlock.connect(url, prefix="bench", timeout=PATIENCE, ttl=2.0).lock


class Silence:
    """A sink that ignores all notifications, for a backend without an engine."""

    def notified(self, key: str) -> None: ...

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None: ...

    def lost(self, key: str, token: str) -> None: ...

    def release_requested(self, key: str, token: str) -> None: ...

    def missed_notifications(self) -> None: ...

    def reconnected(self) -> None: ...


def our_backend(url: str) -> Lock:
    """Return locks of the Redis backend without the engine."""
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
    """Return locks that do not exclude, so that the checks have to find violations."""
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
    """Return locks of two commands on a bare connection: SET NX PX, and a script that deletes its own key."""
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
    """Return locks with the simplest queue on Redis: the floor for hand-offs in order between processes.

    The queue survives no crash, no lost connection and no waiter that gives up. It has no fence and no
    renewal. The script that releases the lock hands it off, and ``BLPOP`` wakes the next waiter.
    """
    import redis

    with redis.Redis.from_url(url) as client:
        return QueueCaller(url, client.script_load(ENTER_QUEUE), client.script_load(LEAVE_QUEUE)).lock


def kazoo(url: str) -> Lock:
    client = started(url)
    return lambda name: client.Lock(f"/bench/{name}")


def kazoo_floor(url: str) -> Lock:
    """Return locks that create and delete a node, two writes that every lock on ZooKeeper needs."""
    client = started(url)
    client.ensure_path("/bench/floor")

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        path = client.create(f"/bench/floor/{name}-", ephemeral=True, sequence=True)
        yield
        client.delete(path)

    return lock


def flock(url: str) -> Lock:
    """Return locks by ``flock``. They have no fence, timeout or order, and a surviving child keeps them."""
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


class QueueCaller(threading.local):
    """A caller of `bare_queue`, with a connection per thread. It reads replies to releases later."""

    def __init__(self, url: str, enter: str, leave: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader, self._unread = hiredis.Reader(), 0
        self._token, self._enter, self._leave = secrets.token_hex(16), enter, leave
        self._wait = packed("BLPOP", f"wake:{self._token}", BLPOP_SECONDS)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        keys = (name, f"queue:{name}", self._token)
        if not self._asked(packed("EVALSHA", self._enter, 2, *keys)):
            assert self._asked(self._wait), "Nobody has handed it over."
        yield
        self._socket.sendall(packed("EVALSHA", self._leave, 2, *keys))
        self._unread += 1

    def _asked(self, command: bytes) -> object:
        self._socket.sendall(command)
        for _ in range(self._unread):
            self._answer()
        self._unread = 0
        return self._answer()

    def _answer(self) -> object:
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        if isinstance(answer, Exception):
            raise answer
        return answer


def packed(*words: str | int) -> bytes:
    # The type annotations of hiredis accept tuples of one word only.
    command: Any = words
    made: bytes = hiredis.pack_command(command)
    return made


class NothingBackend:
    """A lock service for one process that costs nothing, so that only the engine's cost is left.

    It grants every request, because the engine sends one for all threads, and none while it has a hold.
    """

    capabilities = Capabilities(fence=True)

    def __init__(self, url: str) -> None:
        self._numbers = itertools.count(1)

    def open(self, sink: Sink) -> None: ...

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired:
        return Acquired(next(self._numbers) * request.span)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return True

    def renew(self, requests: Sequence[LockRequest]) -> Sequence[bool | None]:
        return [True] * len(requests)

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return True

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return Acquired(number + 1)

    def locked(self, key: str) -> bool:
        return False

    def close(self) -> None: ...

    def after_fork(self) -> None: ...


#: The functions that make locks from a URL, by the locks' names in the tables.
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
