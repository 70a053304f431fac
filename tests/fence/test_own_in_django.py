"""``atomic(grant)``, on three databases."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction

import distlock
from distlock import ConfigurationError, LockLost, Locks, LockTimeout, LostInside, NotHeld
from django_distlock import atomic
from tests.fence.conftest import STOCK
from tests.fence.dummies import dummy_locks


@pytest.fixture
def locks() -> Iterator[Locks]:
    locks = distlock.connect(f"memory://{secrets.token_hex(4)}", prefix="shop", timeout=5)
    yield locks
    locks.close()


def read(using: str) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT qty FROM stock WHERE id = 1")
        return int(cursor.fetchone()[0])


def write(using: str, qty: int) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("UPDATE stock SET qty = %s WHERE id = 1", [qty])


def test_what_the_block_writes_is_committed_under_the_lock(migrated: str, locks: Locks) -> None:
    held: list[bool] = []
    with locks.lock("product_1") as grant, atomic(grant, using=migrated):
        write(migrated, 7)
        transaction.on_commit(lambda: held.append(locks.lock("product_1").locked()), using=migrated)
    assert read(migrated) == 7
    assert held == [True]


def test_errors_roll_back(migrated: str, locks: Locks) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, atomic(grant, using=migrated):
            write(migrated, 7)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        buy()
    assert read(migrated) == STOCK


def test_a_lock_that_was_lost_before_commit_rolls_back(migrated: str, locks: Locks) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, atomic(grant, using=migrated):
            write(migrated, 7)
            # Closing the client is to a grant what an ended lease is.
            locks.close()

    with pytest.raises(LockLost):
        buy()
    assert read(migrated) == STOCK


def test_what_is_overtaken_is_not_begun(migrated: str) -> None:
    locks = dummy_locks()
    with locks.lock("product_1") as stale, locks.lock("product_1") as later:
        with atomic(later, using=migrated):
            write(migrated, 7)
        with pytest.raises(LockLost, match="was overtaken"), atomic(stale, using=migrated):
            pytest.fail("ran")
    assert read(migrated) == 7


def test_a_grant_that_was_released_is_refused(migrated: str, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        pass
    with pytest.raises(NotHeld), atomic(grant, using=migrated):
        pytest.fail("ran")


def test_the_wait_for_an_earlier_transaction_ends_with_the_time_out(migrated: str) -> None:
    locks = dummy_locks(TIMEOUT=0.05)

    def later() -> None:
        try:
            with locks.lock("product_1") as grant, atomic(grant, using=migrated):
                pytest.fail("ran")
        finally:
            connections[migrated].close()

    with (
        locks.lock("product_1") as grant,
        atomic(grant, using=migrated),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(LockTimeout, match="an earlier holder's transaction was still open"),
    ):
        pool.submit(later).result()


def test_in_an_open_transaction_it_says_what_to_write(migrated: str, locks: Locks) -> None:
    with (
        locks.lock("product_1") as grant,
        transaction.atomic(using=migrated),
        pytest.raises(ConfigurationError, match=r"'with locks\.lock\(…\) as grant, atomic\(grant\):'"),
        atomic(grant, using=migrated),
    ):
        pytest.fail("ran")


def test_another_database_may_be_in_a_transaction(migrated: str, locks: Locks) -> None:
    with locks.lock("product_1") as grant, transaction.atomic(using="other"), atomic(grant, using=migrated):
        write(migrated, 7)
    assert read(migrated) == 7


def test_with_autocommit_off_nothing_would_ever_be_committed(
    migrated: str, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings[migrated], "AUTOCOMMIT", False)
    with (
        locks.lock("product_1") as grant,
        pytest.raises(ConfigurationError, match="autocommit is off"),
        atomic(grant, using=migrated),
    ):
        pytest.fail("ran")


def test_async_code_is_refused_and_a_thread_of_it_is_not(migrated: str, locks: Locks) -> None:
    def reduce() -> None:
        try:
            with locks.lock("product_1") as grant, atomic(grant, using=migrated):
                write(migrated, 7)
        finally:
            connections[migrated].close()

    async def task() -> None:
        async with locks.lock("product_1") as grant:
            with (
                pytest.raises(ConfigurationError, match=r"asyncio\.to_thread\(\) or sync_to_async\(\)"),
                atomic(grant, using=migrated),
            ):
                pytest.fail("ran")
        await asyncio.to_thread(reduce)

    asyncio.run(task())
    assert read(migrated) == 7


def test_an_unknown_database_is_named(using: str, locks: Locks) -> None:
    with (
        locks.lock("product_1") as grant,
        pytest.raises(ConfigurationError, match="'nowhere' names no"),
        atomic(grant, using="nowhere"),
    ):
        pytest.fail("ran")


def test_what_was_committed_stands_if_the_lock_is_lost_then(migrated: str, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        with atomic(grant, using=migrated):
            write(migrated, 7)
        locks.close()
        assert grant.lost
    assert read(migrated) == 7


def test_what_was_rolled_back_vouches_for_nothing(migrated: str, locks: Locks) -> None:
    with (  # noqa: PT012
        pytest.raises(LostInside),
        locks.lock("product_1") as grant,
        pytest.raises(LockLost),
        atomic(grant, using=migrated),
    ):
        write(migrated, 7)
        locks.close()
    assert read(migrated) == STOCK
