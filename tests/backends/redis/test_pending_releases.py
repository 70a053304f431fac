"""Releases whose answers nobody waits for: in order, repeated where they were lost, and told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distlock
from distlock import Grant
from distlock.testing.waits import engine_of
from tests.backend_class import backend_class
from tests.backends.redis.contender import MakeContender, ask
from tests.backends.redis.proxy import Proxy
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key, is_free

RedisBackend = backend_class("redis://localhost")

Connect = Callable[..., distlock.Locks]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(url: str, **settings: object) -> distlock.Locks:
        locks = distlock.connect(url, prefix="test", ttl=60, timeout=PATIENCE, **settings)  # type: ignore[arg-type]
        made.append(locks)
        # The first release of a process is awaited: it finds out whether the server has the scripts.
        with locks.lock("warm_up"):
            pass
        return locks

    yield connect
    for one in made:
        one.close()


def taken(locks: distlock.Locks, name: str) -> Grant:
    grant = locks.lock(name).acquire(timeout=0)
    assert grant is not None, f"{name} is held by somebody"
    return grant


def pool_of(locks: distlock.Locks) -> Any:
    backend = engine_of(locks).backend
    assert isinstance(backend, RedisBackend)
    return backend._pool


def owed(locks: distlock.Locks) -> int:
    """Answers that nobody has read."""
    return sum(len(connection.pending) for connection in list(pool_of(locks)._idle))


def test_a_release_does_not_wait_for_its_answer(proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.url)
    grant = taken(locks, "product_1")
    proxy.hold(replies=True)
    releasing = threading.Thread(target=grant.release)
    releasing.start()
    releasing.join(PATIENCE)
    assert not releasing.is_alive()
    proxy.flow()
    eventually(lambda: owed(locks) == 0, "the keeper has read the answer")


class Aside:
    """*function*, called in a thread of its own."""

    def __init__(self, function: Callable[[], Grant | None]) -> None:
        self._answers: list[Grant | None] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(function()))
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def answer(self) -> Grant | None:
        self._thread.join(PATIENCE)
        return self._answers[0]


def in_use(locks: distlock.Locks) -> None:
    eventually(lambda: not pool_of(locks)._idle, "its connection is in use")


def test_what_this_process_asks_next_does_not_overtake_it(proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.url)
    grant = taken(locks, "product_1")
    proxy.hold(replies=False)
    grant.release()
    # Its connection is in use, and on another one a request would be there before the release.
    other = Aside(lambda: taken(locks, "product_2"))
    in_use(locks)
    again = Aside(lambda: locks.lock("product_1").acquire(timeout=0))
    eventually(lambda: pool_of(locks)._waiting or again.is_done(), "it waits for the connection")
    proxy.flow()
    assert again.answer() is not None
    assert other.answer() is not None


def test_a_look_does_not_overtake_it(proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.url)
    grant = taken(locks, "product_1")
    proxy.hold(replies=False)
    grant.release()
    other = Aside(lambda: taken(locks, "product_2"))
    in_use(locks)
    looks = Aside(lambda: grant if locks.lock("product_1").locked() else None)
    eventually(lambda: pool_of(locks)._waiting or looks.is_done(), "it waits for the connection")
    proxy.flow()
    assert looks.answer() is None
    assert other.answer() is not None


@pytest.mark.parametrize("lose", [Proxy.lose_request, Proxy.lose_reply], ids=["request", "reply"])
def test_one_that_was_lost_is_repeated_before_what_this_process_asks_next(
    proxy: Proxy, connect: Connect, lose: Callable[[Proxy], None]
) -> None:
    locks = connect(proxy.url)
    grant = taken(locks, "product_1")
    lose(proxy)
    grant.release()
    again = taken(locks, "product_1")
    assert proxy.lost.is_set()
    assert again.fence > grant.fence


@pytest.mark.parametrize("lose", [Proxy.lose_request, Proxy.lose_reply], ids=["request", "reply"])
def test_one_that_was_lost_is_repeated_by_the_keeper(
    proxy: Proxy, redis_server: RedisServer, connect: Connect, lose: Callable[[Proxy], None]
) -> None:
    locks, other = connect(proxy.url), connect(redis_server.url)
    grant = taken(locks, "product_1")
    lose(proxy)
    grant.release()
    with other.lock("product_1"):
        eventually(proxy.lost.is_set, "it was lost")
    assert not grant.lost


def test_a_server_that_forgot_the_scripts_is_told_again(own_server: RedisServer, connect: Connect) -> None:
    locks, other = connect(own_server.url), connect(own_server.url)
    for taker in (locks, other):
        grant = taken(locks, "product_1")
        own_server.client.script_flush()
        grant.release()
        if taker is locks:
            taken(taker, "product_1").release()
        else:
            with taker.lock("product_1"):
                pass


def test_one_that_was_not_ours_is_told_soon(redis_server: RedisServer, connect: Connect) -> None:
    told: list[tuple[Grant, str]] = []
    locks = connect(redis_server.url, on_lost=lambda grant, why: told.append((grant, why)))
    grant = taken(locks, "product_1")
    redis_server.client.delete(hold_key("test:product_1"))
    grant.release()
    # Nobody asks for anything.
    eventually(lambda: told, "on_lost is called")
    assert told[0][0] is grant
    assert grant.lost
    assert "before it was released" in told[0][1]


def test_a_client_that_is_closed_has_released(own_server: RedisServer, connect: Connect) -> None:
    locks = connect(own_server.url)
    grant = taken(locks, "product_1")
    own_server.client.script_flush()
    grant.release()
    locks.close()
    assert is_free(own_server.client.get(hold_key("test:product_1")))


_ENDS = """
import sys, distlock, redis
locks = distlock.connect(sys.argv[1], prefix="test", ttl=60)
with locks.lock("warm_up"):
    pass
grant = locks.lock("product_1").acquire()
redis.Redis.from_url(sys.argv[1]).script_flush()
grant.release()
"""


def test_a_process_that_ends_has_released(own_server: RedisServer) -> None:
    subprocess.run([sys.executable, "-c", _ENDS, own_server.url], check=True, timeout=PATIENCE)
    assert is_free(own_server.client.get(hold_key("test:product_1")))


def test_a_child_that_is_forked_right_after_it_finds_the_lock_free(
    proxy: Proxy, redis_server: RedisServer, connect: Connect
) -> None:
    locks = connect(proxy.url)
    grant = taken(locks, "product_1")
    proxy.drips = 0.001  # Of the reply; it tells that the fork waits.
    grant.release()
    pid = os.fork()
    if pid == 0:
        # The threads of the proxy stayed with the parent.
        os._exit(not is_free(redis_server.client.get(hold_key("test:product_1"))))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert owed(locks) == 0


def test_many_in_a_row_are_read_in_between(redis_server: RedisServer, connect: Connect) -> None:
    locks = connect(redis_server.url)
    grants = [taken(locks, f"product_{number}") for number in range(200)]
    for grant in grants:
        grant.release()
        assert owed(locks) <= 64
    eventually(lambda: owed(locks) == 0, "all are read")
    assert not any(grant.lost for grant in grants)


def test_a_cancel_comes_after_a_release_that_is_on_its_way(proxy: Proxy, contender: MakeContender) -> None:
    one, mine, told = contender(proxy.url), ask(), list[bool | None]()
    one.hold(mine)
    one.release(mine)
    one.hold(mine)
    proxy.hold(replies=False)
    one.post(mine, told.append)
    busy = one._pool.lend()
    assert busy is not None
    # On another connection it would find the lock still ours, and it would be given back twice.
    assert one.cancel(mine) is False
    proxy.flow()
    one._pool.give_back(busy)
    assert told == []


def test_a_repetition_whose_answer_is_lost_is_no_loss_of_the_lock(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    one, mine, told = contender(proxy.url), ask(), list[bool | None]()
    one.hold(mine)
    one.release(mine)
    one.hold(mine)
    redis_server.client.script_flush()
    one.post(mine, told.append)
    # The refusal is read with the next answer there.
    one.locked(ask().key)
    other, its = contender(redis_server.url), ask()
    other.hold(its)
    other.release(its)
    proxy.lose_reply()
    assert one.settle()
    assert proxy.lost.is_set()
    assert told == []
    assert not one.locked(mine.key)
