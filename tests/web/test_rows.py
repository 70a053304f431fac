"""What happens in one process where the lock is a row: before anybody asks the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from distlock.clock import now
from distlock.errors import ConfigurationError, LockTimeout, NotHeld, TooManyWaiters
from distlock.fence.row_grant import RowGrant
from distlock.locks.client import Locks
from distlock.testing.waits import engine_of
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import make_rows
from tests.redis_server import eventually


def client(**given: object) -> Locks:
    return make_rows(read({"default": {"BACKEND": "database", "PREFIX": "shop", **given}})["default"])


def wait_for(locks: Locks, waiting: int) -> None:
    deadline = time.monotonic() + 10
    while engine_of(locks).queues.waiting != waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_one_thread_at_a_time_goes_to_the_database_and_in_order() -> None:
    locks, order = client(), list[int]()

    def enter(number: int) -> None:
        with locks.lock("product_1"):
            order.append(number)

    with ThreadPoolExecutor(5) as pool, locks.lock("product_1"):
        for number in range(5):
            pool.submit(enter, number)
            wait_for(locks, number + 1)
        assert order == []
    assert order == [0, 1, 2, 3, 4]
    locks.close()


def test_other_names_are_not_waited_for() -> None:
    locks = client()
    with locks.lock("product_1", "product_2"), locks.lock("product_3"):
        pass
    locks.close()


def test_too_many_are_turned_away_at_once() -> None:
    locks = client(MAX_WAITERS=1)
    with ThreadPoolExecutor(2) as pool:
        with locks.lock("product_1"):
            waiting = pool.submit(locks.lock("product_1").__enter__)
            wait_for(locks, 1)
            with pytest.raises(TooManyWaiters):
                pool.submit(locks.lock("product_1").__enter__).result()
        waiting.result().release()
    locks.close()


def test_a_writer_goes_to_the_database_beside_readers_and_those_after_it_wait_here() -> None:
    locks, order = client(), list[str]()

    def enter(word: str) -> None:
        with getattr(locks, word)("product_1") as grant:
            order.append(grant.mode)

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as pool, locks.read_lock("product_1"):
        pool.submit(enter, "read_lock").result(60)
        # The database knows of the other readers, and has the writer wait for them.
        writer = one.submit(locks.lock("product_1").__enter__).result(60)
        reader = pool.submit(enter, "read_lock")
        wait_for(locks, 1)
        assert order == ["read"]
        writer.release()
        reader.result(60)
    assert order == ["read", "read"]
    locks.close()


def test_who_would_wait_in_vain_is_turned_away_at_once() -> None:
    locks = client(TIMEOUT=60)
    with ThreadPoolExecutor(2) as pool:
        with locks.lock("product_1"):
            waiting = pool.submit(locks.lock("product_1").__enter__)
            wait_for(locks, 1)
            (room,) = engine_of(locks).queues.by_key.values()
            eventually(lambda: now() - room.since > 0.3, "it takes long")
            with pytest.raises(TooManyWaiters) as refusal:
                pool.submit(locks.lock("product_1", timeout=0.3).__enter__).result()
            assert refusal.value.expected_wait is not None
            # Another name is free.
            pool.submit(locks.lock("product_2", timeout=0.3).__enter__).result().release()
        waiting.result().release()
    locks.close()


def test_who_waits_too_long_is_told_so() -> None:
    locks, late = client(TIMEOUT=0.01), list[Exception]()

    def enter() -> None:
        with pytest.raises(LockTimeout) as caught:
            locks.lock("product_1").__enter__()
        late.append(caught.value)

    with locks.lock("product_1"):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert "after 0.01 seconds" in str(late[0])
    locks.close()


def test_a_grant_knows_no_fence_before_its_row_and_says_who_it_is() -> None:
    locks = client()
    with locks.lock("b", "a") as grant:
        assert isinstance(grant, RowGrant)
        assert (repr(grant), grant.names, grant.namespace) == ("<RowGrant of 'a', 'b'>", ("a", "b"), "shop")
        assert not grant.lost
        assert not grant.released
        assert grant.remaining() == float("inf")
        assert len(set(grant.holder_ids.values())) == 1
        with pytest.raises(NotHeld, match="'a', 'b' is not known before the transaction"):
            _ = grant.fences
    assert grant.released
    locks.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda locks: locks.semaphore("product_1", limit=2),
        lambda locks: locks.latch("product_1", 2),
        lambda locks: locks.request_release("product_1"),
    ],
    ids=["semaphore", "latch", "request_release"],
)
def test_what_a_row_cannot_do_is_refused_in_the_words_of_the_settings(
    call: Callable[[Locks], object],
) -> None:
    locks = client()
    with pytest.raises(ConfigurationError, match="can't be had from the backend 'database'"):
        call(locks)
    locks.close()
