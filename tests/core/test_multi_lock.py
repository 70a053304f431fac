"""Several locks as one, over several clients."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distlock
from distlock import (
    BackendUnavailable,
    ConfigurationError,
    Locks,
    LockTimeout,
    LostInside,
    NotHeld,
    multi_lock,
)
from distlock.testing.fakes import lose_grant
from tests.redis_server import RedisServer

Connect = Callable[[str], Locks]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients of lock services of their own, by prefix."""
    made: list[Locks] = []

    def connect(prefix: str) -> Locks:
        made.append(distlock.connect(f"memory://{secrets.token_hex(4)}", prefix=prefix, timeout=0.5))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def orders(connect: Connect) -> Locks:
    return connect("orders")


@pytest.fixture
def stock(connect: Connect) -> Locks:
    return connect("stock")


def test_it_takes_all_of_them_and_gives_all_back(orders: Locks, stock: Locks) -> None:
    with multi_lock(stock.lock("product_1"), orders.lock("order_7", "order_3")) as grant:
        assert all(locks.lock(name).locked() for locks, name in ((stock, "product_1"), (orders, "order_3")))
        assert grant.names == ("product_1", "order_3", "order_7")
        assert grant.grants[1].fences.keys() == {"order_3", "order_7"}
        grant.check()
    assert not any(locks.lock(name).locked() for locks, name in ((stock, "product_1"), (orders, "order_3")))


def test_where_one_is_taken_none_is_kept(orders: Locks, stock: Locks) -> None:
    both = multi_lock(orders.lock("order_7"), stock.lock("product_1"))
    with stock.lock("product_1"):
        with pytest.raises(ConfigurationError, match="'product_1' is held by a 'with' block around this"):
            both.__enter__()
        assert both.acquire(timeout=0) is None
        assert both.acquire() is None
        assert not orders.lock("order_7").locked()
    assert not both.owned()


def test_the_error_names_the_lock_that_stayed_taken(orders: Locks, stock: Locks) -> None:
    held = stock.lock("product_1").acquire()
    assert held is not None
    with (
        pytest.raises(LockTimeout, match="'product_1' was still held"),
        multi_lock(orders.lock("order_7"), stock.lock("product_1")),
    ):
        pass
    held.release()
    assert not orders.lock("order_7").locked()


def test_callers_that_write_them_in_another_order_never_wait_in_a_ring(orders: Locks, stock: Locks) -> None:
    sold = []

    def buy(*locks: distlock.Lock) -> None:
        for _ in range(200):
            with multi_lock(*locks, timeout=60):
                sold.append(1)

    one, other = orders.lock("order_7"), stock.lock("product_1")
    threads = [threading.Thread(target=buy, args=pair) for pair in ((one, other), (other, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sold) == 400


def test_the_longest_wait_is_that_of_all_together(orders: Locks, stock: Locks) -> None:
    first, second = orders.lock("order_7").acquire(), stock.lock("product_1").acquire()
    assert first is not None
    assert second is not None
    leaving = threading.Timer(1.8, first.release)
    leaving.start()
    began = time.monotonic()
    assert multi_lock(orders.lock("order_7"), stock.lock("product_1"), timeout=2).acquire() is None
    assert 2 <= time.monotonic() - began < 3.6
    leaving.join()
    second.release()


def test_the_shortest_of_the_locks_own_waits_counts(orders: Locks, stock: Locks) -> None:
    assert multi_lock(orders.lock("a", timeout=3), stock.lock("b", timeout=-1)).timeout == 3
    assert multi_lock(orders.lock("a", timeout=-1), stock.lock("b", timeout=-1)).timeout == -1
    assert multi_lock(orders.lock("a"), timeout=7).timeout == 7


def test_one_name_under_two_prefixes_is_two_locks(orders: Locks, stock: Locks) -> None:
    with multi_lock(stock.lock("a"), orders.lock("a")) as grant:
        assert [one.namespace for one in grant.grants] == ["stock", "orders"]
        assert grant.grants[0].fence
        with pytest.raises(AttributeError, match=r"grant\.grants\[0\]\.fence"):
            _ = grant.fences


def test_one_name_under_one_prefix_twice_is_refused(orders: Locks) -> None:
    with pytest.raises(ConfigurationError, match="the lock 'a' of the prefix 'orders' twice"):
        multi_lock(orders.lock("a", "b"), orders.lock("a"))


def test_another_client_of_the_same_lock_service_has_the_same_lock() -> None:
    """Its options may differ: the URL counts."""
    one, other = (distlock.connect("redis://localhost:1/0", prefix="shop", ack_window=s) for s in (0.5, 1.0))
    with pytest.raises(ConfigurationError, match="the lock 'a' of the prefix 'shop' twice"):
        multi_lock(one.lock("a"), other.lock("a"))


def test_a_client_with_another_login_has_the_same_lock() -> None:
    """As while a password is changed, server by server."""
    one, other = (
        distlock.connect(f"redis://{login}localhost:1/0", prefix="shop") for login in (":old@", "ann:new@")
    )
    with pytest.raises(ConfigurationError, match="the lock 'a' of the prefix 'shop' twice"):
        multi_lock(one.lock("a"), other.lock("a"))


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("redis://localhost", "redis://127.0.0.1:6379/0"),
        ("redis://Redis-Old:6379/1", "redis://redis-old/1"),
        ("zookeeper://zk1,zk2:2181/shop", "zookeeper://ZK1:2181,zk2/shop"),
        ("rediss://[::1]:6380/", "rediss://localhost:6380/0"),
    ],
)
def test_a_client_with_another_spelling_of_the_url_has_the_same_lock(url: str, other: str) -> None:
    with pytest.raises(ConfigurationError, match="the lock 'a' of the prefix 'shop' twice"):
        multi_lock(*(distlock.connect(one, prefix="shop").lock("a") for one in (url, other)))


def test_the_order_is_the_same_however_a_process_spells_the_urls() -> None:
    orders = []
    for old, new in (
        ("redis://127.0.0.1:7001/0", "redis://localhost:7002/0"),
        ("redis://localhost:7001", "redis://127.0.0.1:7002"),
    ):
        first, second = (distlock.connect(url, prefix="shop") for url in (old, new))
        parts = multi_lock(second.lock("a"), first.lock("a"))._parts
        orders.append([part.client is first for part in parts])
    assert orders[0] == orders[1]


def test_one_name_on_two_lock_services_is_two_locks_in_one_order(connect: Connect) -> None:
    """As while a site moves from one lock service to another."""
    old, new = connect("shop"), connect("shop")
    upright, reverse = (
        [one.client for one in multi_lock(first.lock("a"), second.lock("a"))._parts]
        for first, second in ((old, new), (new, old))
    )
    assert upright == reverse
    with multi_lock(old.lock("a"), new.lock("a")) as grant:
        assert [one.namespace for one in grant.grants] == ["shop", "shop"]
        assert old.lock("a").locked()
        assert new.lock("a").locked()


def test_a_write_of_what_the_caller_reads_is_refused_before_any_is_waited_for(
    orders: Locks, stock: Locks
) -> None:
    reader = stock.read_lock("b").acquire()
    assert reader is not None
    with orders.lock("a"):
        with pytest.raises(ConfigurationError, match="lock 'b' can't be taken to write"):
            multi_lock(orders.lock("a"), stock.lock("b"), timeout=600).acquire()
        assert multi_lock(orders.lock("a"), stock.read_lock("b"), timeout=0).acquire() is None
    reader.release()


def test_what_is_no_lock_is_refused(orders: Locks) -> None:
    with pytest.raises(TypeError, match="at least one lock"):
        multi_lock()
    with pytest.raises(TypeError, match=r"takes locks, as locks\.lock"):
        multi_lock("product_1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        multi_lock(orders.lock("a"), timeout=-2)


def test_a_lock_service_that_is_away_leaves_nothing_taken(orders: Locks) -> None:
    away = distlock.connect("redis://127.0.0.1:1", prefix="z")
    with pytest.raises(BackendUnavailable), multi_lock(orders.lock("order_7"), away.lock("a")):
        pass
    assert not orders.lock("order_7").locked()
    away.close()


def test_it_spans_lock_services(redis_server: RedisServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    one = distlock.connect(redis_server.url, prefix=secrets.token_hex(4))
    other = distlock.connect(tmp_path.as_uri(), prefix="files")
    with multi_lock(one.lock("a"), other.lock("a")):
        assert one.lock("a").locked()
        assert other.lock("a").locked()
    assert not one.lock("a").locked()
    assert not other.lock("a").locked()
    one.close()
    other.close()


def test_whose_member_was_lost_is_told_at_the_end(orders: Locks, stock: Locks) -> None:
    def buy() -> None:
        with multi_lock(orders.lock("order_7"), stock.lock("product_1")) as grant:
            lost = grant.grants[1]
            lose_grant(lost, "the test takes it away")
            assert grant.lost

    with pytest.raises(LostInside, match="'product_1'"):
        buy()
    assert not orders.lock("order_7").locked()


def test_acquire_and_release_are_a_pair(orders: Locks, stock: Locks) -> None:
    both = multi_lock(orders.lock("order_7"), stock.lock("product_1"))
    with pytest.raises(NotHeld):
        both.release()
    assert both.acquire()
    assert both.owned()
    assert both.locked()
    both.release()
    assert not both.locked()


def test_a_released_grant_is_all_of_them(orders: Locks, stock: Locks) -> None:
    both = multi_lock(orders.lock("order_7"), stock.lock("product_1"))
    grant = both.acquire()
    assert grant is not None
    grant.release()
    assert grant.released
    assert not both.locked()


def test_of_reentrant_ones_the_owner_gets_in_again(orders: Locks, stock: Locks) -> None:
    with (
        stock.rlock("product_1"),
        multi_lock(orders.rlock("order_7"), stock.rlock("product_1")),
        multi_lock(orders.rlock("order_7"), stock.rlock("product_1", "product_2")),
    ):
        assert stock.lock("product_2").locked()
    assert not any(
        one.locked() for one in (orders.lock("order_7"), stock.lock("product_1"), stock.lock("product_2"))
    )


def test_tasks_take_turns(orders: Locks, stock: Locks) -> None:
    inside: list[int] = []

    async def buy() -> None:
        async with multi_lock(orders.lock("order_7"), stock.lock("product_1"), timeout=60):
            inside.append(1)
            await asyncio.sleep(0)
            assert len(inside) == 1
            inside.clear()

    async def main() -> None:
        await asyncio.gather(*(buy() for _ in range(50)))
        both = multi_lock(orders.lock("order_7"), stock.lock("product_1"))
        assert await both.aacquire()
        await both.arelease()

    asyncio.run(main())
    assert not orders.lock("order_7").locked()
