"""A process under gevent whose greenlets are killed while they take a lock.

``python -m gevent.monkey --module tests.backends.redis.greenlets PORT LIBRARY`` obeys ``ask``, which starts
a greenlet that takes a lock, ``kill``, which kills it, and ``storm``, which kills many at all moments. It
says what it has done.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import gevent
import redis

import distlock

KILLED = 200
port, library = int(sys.argv[1]), sys.argv[2]
locks = distlock.connect(f"redis://127.0.0.1:{port}/0", prefix="greenlets", ttl=60, timeout=30)
client = redis.Redis(port=port, socket_timeout=60)


def ask_distlock() -> None:
    locks.lock("product_1").acquire()


def ask_redis_py() -> None:
    client.lock("product_1", timeout=60).acquire()


def say(word: str) -> None:
    print(word, flush=True)


def hear() -> str:
    # Standard input is not patched: only a thread may wait for it.
    return str(gevent.get_hub().threadpool.apply(sys.stdin.readline)).strip()


class Storm:
    """Greenlets that take one lock, and are killed at a moment of its way. Nobody is inside with another."""

    def __init__(self) -> None:
        self._inside = 0
        self._random = random.Random(1)
        self._torn = 0

    def rage(self) -> None:
        for _ in range(KILLED):
            both = [gevent.spawn(self._enter) for _ in range(2)]
            for _ in range(self._random.randrange(12)):
                gevent.sleep(self._random.choice((0, 0.0002)))
            self._random.choice(both).kill()
            gevent.joinall(both, raise_error=True)
            self._torn += any(isinstance(one.value, gevent.GreenletExit) for one in both)
        assert self._torn > KILLED / 4
        self._enter()

    def _enter(self) -> None:
        with locks.lock("product_2") as grant:
            assert not self._inside
            self._inside += 1
            try:
                gevent.sleep(0)
                grant.check()
            finally:
                self._inside -= 1


def main(ask: Callable[[], None]) -> None:
    # Each has a connection.
    with locks.lock("product_2"):
        client.ping()
    say("ready")
    asking = None
    for word in iter(hear, ""):
        if word == "ask":
            asking = gevent.spawn(ask)
        elif word == "kill":
            assert asking is not None
            asking.kill()
        else:
            Storm().rage()
        say(word)


main({"distlock": ask_distlock, "redis-py": ask_redis_py}[library])
