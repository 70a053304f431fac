"""A signal or a fork at any moment in which a thread listens, and begins on the push: nobody is stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import distlock
from distlock import Grant
from distlock.errors import Reentered
from distlock.testing.waits import engine_of
from tests.backend_class import backend_class
from tests.backends.redis.proxy import Proxy
from tests.core.interrupts import Interrupted, Tracer
from tests.core.test_interrupts import check
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key, owner_in

RedisBackend = backend_class("redis://localhost")

FILES = ("engine/hold_calls.py", "backends/redis/subscription.py")
PREFIX = "interrupts"
#: A lock that nobody knows of ends after this, seconds, and the ttl.
MAX_HOLD, TTL = 1.0, 10.0


@pytest.fixture
def near(redis_server: RedisServer) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, prefix=PREFIX, ttl=TTL, timeout=PATIENCE)
    yield locks
    locks.close()


@pytest.fixture
def far(redis_server: RedisServer) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, prefix=PREFIX, ttl=TTL, max_hold=MAX_HOLD, timeout=PATIENCE)
    yield locks
    locks.close()


class HandOff:
    """*near* holds the lock until *far*, in this thread, waits for it, and begins on the push."""

    def __init__(self, server: RedisServer, near: distlock.Locks, far: distlock.Locks) -> None:
        self._server = server
        self._near = near
        self._far = far
        self.played = set[str]()

    def play(self, tracer: Tracer) -> None:
        grant = self._near.lock("a").acquire()
        assert grant is not None
        over = threading.Event()
        releasing = threading.Thread(target=self._release, args=(grant, over))
        releasing.start()
        try:
            with suppress(Interrupted, distlock.LockLost), tracer, self._far.lock("a", on_push=True) as mine:
                mine.check()
        finally:
            over.set()
            releasing.join()
        if tracer.where:
            self.played.add(tracer.where)

    def _release(self, grant: Grant, over: threading.Event) -> None:
        queue = f"{hold_key(f'{PREFIX}:a')}:queue"
        eventually(lambda: over.is_set() or self._server.client.llen(queue), "it waits")
        grant.release()

    def look(self, where: str) -> None:
        """Nothing is left of it."""
        for locks in (self._near, self._far):
            grant = locks.lock("a").acquire()
            assert grant is not None, where
            grant.release()
        self._far.namespace.entered_by_owner.clear()
        check(engine_of(self._far))

    def everywhere(self, handler: Callable[[], None]) -> None:
        number, misses = 1, 0
        while misses < 5:
            # One that was torn out of the reading leaves that to the listener, for a while.
            eventually(self._reads, f"it reads itself, before point {number}")
            self.play(tracer := Tracer(number, handler, FILES))
            if tracer.where:
                self.look(tracer.where)
                number, misses = number + 1, 0
            else:
                # On a busy machine a push comes late, and it asks instead.
                misses += 1
        assert {where.partition(":")[0] for where in self.played} == set(FILES)
        assert len(self.played) > 20, sorted(self.played)

    def _reads(self) -> bool:
        backend = engine_of(self._far).backend
        assert isinstance(backend, RedisBackend)
        assert backend._subscription is not None
        backend._subscription._reader._was_led = False
        self.play(Tracer(files=FILES))
        return backend._subscription._reader._was_led


@pytest.fixture
def hand_over(redis_server: RedisServer, near: distlock.Locks, far: distlock.Locks) -> HandOff:
    return HandOff(redis_server, near, far)


@pytest.mark.fault("F08")
def test_whoever_is_interrupted_leaves_nothing_behind(hand_over: HandOff) -> None:
    def interrupt() -> None:
        raise Interrupted

    hand_over.everywhere(interrupt)


def test_a_handler_that_takes_a_lock_gets_it_or_is_refused(hand_over: HandOff, far: distlock.Locks) -> None:
    def take() -> None:
        with suppress(Reentered):
            for name in ("a", "b"):
                if grant := far.lock(name).acquire(timeout=0):
                    grant.release()

    hand_over.everywhere(take)


def test_a_connection_whose_making_was_interrupted_is_dropped_in_silence(
    far: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with far.lock("a"):
        kind = type(next(iter(engine_of(far).backend._pool._all)))
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    # The earliest moment: it has nothing yet.
    torn = kind.__new__(kind)
    del torn
    assert told == []


def test_a_child_that_is_forked_meanwhile_has_locks_of_its_own(
    hand_over: HandOff, near: distlock.Locks, far: distlock.Locks
) -> None:
    def use() -> None:
        with near.lock("c"):
            # It listens.
            assert far.lock("c").acquire(timeout=0.01) is None
        with far.lock("c", on_push=True) as grant:
            grant.check()

    def fork() -> None:
        if (pid := os.fork()) == 0:
            signal.alarm(60)
            status = 1
            try:
                use()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0

    def fork_in_thread() -> None:
        failures: list[BaseException] = []

        def call() -> None:
            try:
                fork()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert failures == []

    hand_over.everywhere(fork_in_thread)


# -- greenlets --------------------------------------------------------------------------------------


class Greenlets:
    """A process under gevent."""

    def __init__(self, port: int, library: str) -> None:
        script = ("-m", "gevent.monkey", "--module", "tests.backends.redis.greenlets")
        command = [sys.executable, *script, str(port), library]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: subprocess.Popen[str] = subprocess.Popen(command, **pipes)
        assert self._says() == "ready"

    def tell(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._says() == word

    def _says(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        with self._process as process:
            process.kill()


@pytest.fixture
def greenlets(proxy: Proxy, library: str) -> Iterator[Greenlets]:
    running = Greenlets(proxy.port, library)
    yield running
    running.close()


@pytest.mark.fault("F08")
@pytest.mark.parametrize("library", ["distlock"])
def test_a_greenlet_that_is_killed_leaves_no_lock_behind(
    redis_server: RedisServer, proxy: Proxy, greenlets: Greenlets
) -> None:
    def owner() -> str | None:
        return owner_in(redis_server.client.get(hold_key("greenlets:product_1")))

    proxy.cut_off(True)
    greenlets.tell("ask")
    eventually(owner, "Redis has granted the lock")
    greenlets.tell("kill")
    proxy.flow()
    eventually(lambda: owner() is None, "the lock is given back", patience=30)
    greenlets.tell("storm")
    assert redis_server.client.keys("dl:2:{greenlets*:queue") == []


@pytest.mark.fault("F08", control=True)
@pytest.mark.parametrize("library", ["redis-py"])
def test_a_lock_that_nobody_gives_back_stays_behind_a_greenlet_that_is_killed(
    redis_server: RedisServer, proxy: Proxy, greenlets: Greenlets
) -> None:
    proxy.cut_off(True)
    greenlets.tell("ask")
    eventually(lambda: redis_server.client.exists("product_1"), "Redis has granted the lock")
    greenlets.tell("kill")
    proxy.flow()
    assert redis_server.client.pttl("product_1") > 1000
    redis_server.client.delete("product_1")
