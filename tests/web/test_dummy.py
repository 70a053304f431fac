from __future__ import annotations

import asyncio

import pytest

from distlock.errors import InvalidName, NotHeld
from tests.fence.dummies import dummy_locks


def test_everybody_gets_the_lock_at_once() -> None:
    locks = dummy_locks()
    with locks.lock("product_1") as first, locks.lock("product_1") as second:
        first.check()
        second.check()
        assert not first.lost
        assert locks.lock("product_1").acquire(timeout=0)


def test_nobody_waits_in_asyncio_either() -> None:
    locks = dummy_locks()

    async def both() -> None:
        async with locks.lock("product_1"), locks.lock("product_1") as grant:
            assert grant.remaining() > 0
        lock = locks.rlock("product_1")
        async with lock, lock:
            assert lock.owned()
        assert await locks.lock("product_1").aacquire(blocking=False)

    asyncio.run(both())


def test_fences_grow() -> None:
    locks = dummy_locks(FENCE_EPOCH=3)
    with locks.lock("product_1") as first:
        pass
    with locks.lock("product_1") as second:
        pass
    assert second.fence > first.fence
    assert second.fence.epoch == 3


def test_several_names_have_several_fences() -> None:
    with dummy_locks().lock("b", "a", "b") as grant:
        assert grant.names == ("a", "b")
        assert set(grant.fences) == {"a", "b"}
        with pytest.raises(AttributeError, match=r"fences\[name\]"):
            _ = grant.fence


def test_a_lock_knows_its_owner_and_is_never_locked() -> None:
    lock = dummy_locks().lock("product_1")
    with lock:
        assert lock.owned()
        assert not lock.locked()
    assert not lock.owned()


def test_a_reentrant_lock_is_one_grant() -> None:
    locks = dummy_locks()
    with locks.rlock("product_1") as outer, locks.rlock("product_1") as inner:
        assert outer is inner
    assert outer.released


def test_what_would_fail_with_a_lock_service_fails_here() -> None:
    locks = dummy_locks()
    with pytest.raises(InvalidName):
        locks.lock("")
    with pytest.raises(TypeError, match="at least one name"):
        locks.lock()
    with pytest.raises(TypeError, match=r"has no 'blocking_timeout'. Here that is timeout="):
        locks.lock("product_1", blocking_timeout=3)
    with pytest.raises(ValueError, match="non-negative"):
        locks.lock("product_1", timeout=-2)
    with pytest.raises(NotHeld):
        locks.lock("product_1").release()
    with locks.lock("product_1") as grant:
        pass
    with pytest.raises(NotHeld, match="released before it was checked"):
        grant.check()


def test_nothing_of_a_client_is_missing() -> None:
    locks = dummy_locks("shop", TIMEOUT=2)
    assert (locks.prefix, locks.timeout) == ("shop", 2)
    locks.close()
    assert locks.lock("product_1").acquire()
