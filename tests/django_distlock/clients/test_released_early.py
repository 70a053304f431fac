"""A lock that is released inside of a transaction: nothing of that is committed after the release."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client

from distlock import Lock
from distlock.errors import ConfigurationError
from django_distlock import locks
from tests.django_distlock.clients.early_releases import (
    anyones,
    by_grant,
    by_lock,
    configured,
    is_rolled_back,
    told,
    write,
)
from tests.redis_server import eventually

Serve = Callable[..., Client]

__all__ = ["configured"]

WAYS = [by_grant, by_lock]


@anyones
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_a_release_before_the_commit_is_told_and_nothing_is_committed(
    kind: str, way: Callable[[Lock], Callable[[], None]]
) -> None:
    lock = getattr(locks, kind)("product_1")
    release = way(lock)
    with told() as caught, transaction.atomic():
        write()
        release()
    assert "with locks.lock(…):' around 'with transaction.atomic():'" in str(caught.value)
    assert is_rolled_back()
    assert not lock.locked(), "it is free all the same"
    with locks.lock("product_1"), transaction.atomic():
        write("afterwards")
    assert Group.objects.count() == 1


@anyones
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_so_are_several_names(kind: str) -> None:
    lock = getattr(locks, kind)("product_1", "product_2")
    release = by_lock(lock)
    with told("was released inside"), transaction.atomic():
        write()
        release()
    assert is_rolled_back()
    eventually(lambda: not lock.locked(), "the keeper gives the rest back")


@anyones
def test_nothing_is_committed_either_where_the_error_is_caught() -> None:
    release = by_grant(locks.lock("product_1"))
    with transaction.atomic():
        write("outer")
        with transaction.atomic():
            write("inner")
            with suppress(ConfigurationError):
                release()
            with pytest.raises(transaction.TransactionManagementError):
                write("later")
    assert is_rolled_back()
    assert not locks.lock("product_1").locked()


@anyones
def test_nor_where_it_is_caught_between_two_blocks() -> None:
    release = by_grant(locks.lock("product_1"))
    with transaction.atomic():
        write("outer")
        with suppress(ConfigurationError), transaction.atomic(), transaction.atomic():
            write("inner")
            release()
    assert is_rolled_back()


@anyones
def test_a_release_before_the_commit_of_autocommit_off_is_told() -> None:
    release = by_grant(locks.lock("product_1"))
    transaction.set_autocommit(False)
    write()
    with told():
        release()
    assert is_rolled_back()


@anyones
def test_a_release_inside_a_with_block_is_told() -> None:
    with (
        told(),
        locks.lock("product_1") as grant,
        transaction.atomic(),
    ):
        write()
        grant.release()
    assert is_rolled_back()


@anyones
def test_a_release_after_the_commit_is_fine() -> None:
    for way in WAYS:
        for kind in (locks.lock, locks.rlock):
            release = way(kind("product_1"))
            with transaction.atomic():
                write(f"{way} {kind}")
            release()
    assert Group.objects.count() == 4


@anyones
def test_a_lock_that_has_nothing_to_do_with_the_database_may_be_released_anywhere() -> None:
    for lock in (
        locks.lock("product_1", in_transaction=True),
        locks.rlock("product_1", in_transaction=True),
    ):
        release = by_grant(lock)
        with transaction.atomic():
            write(str(lock))
            release()
    assert Group.objects.count() == 2


@anyones
def test_an_inner_release_of_an_rlock_that_stays_held_is_fine() -> None:
    lock = locks.rlock("product_1", "product_2")
    with lock, transaction.atomic():
        write()
        with locks.rlock("product_1"):
            write("inside")
        release = by_lock(locks.rlock("product_2"))
        release()
        write("later")
        assert lock.owned()
    assert Group.objects.count() == 3


@anyones
def test_an_rlock_block_that_leaves_a_transaction_open_is_told() -> None:
    with (
        told("left a transaction of the database 'default' open"),
        locks.rlock("product_1"),
    ):
        transaction.atomic().__enter__()
        write()
    assert is_rolled_back()
    assert not locks.rlock("product_1").locked()


@anyones
def test_the_error_of_an_rlock_block_is_raised_all_the_same() -> None:
    with told("its own", ValueError), locks.rlock("product_1"):
        transaction.atomic().__enter__()
        write()
        raise ValueError("its own")
    assert is_rolled_back()


@anyones
def test_condition_that_waits_in_a_transaction_is_told() -> None:
    condition = threading.Condition(locks.rlock("product_1"))  # type: ignore[arg-type]
    with suppress(RuntimeError), told(), condition, transaction.atomic():
        write()
        condition.wait(0.01)
    assert is_rolled_back()


@anyones
def test_a_release_from_another_thread_never_raises() -> None:
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    with transaction.atomic(), ThreadPoolExecutor() as other:
        write()
        other.submit(grant.release).result()
    assert Group.objects.count() == 1


@anyones
def test_nor_does_one_in_a_transaction_of_another_thread() -> None:
    with ThreadPoolExecutor(1) as other:
        grant = other.submit(locks.lock("product_1").acquire).result()
    with transaction.atomic():
        write()
        grant.release()
    assert Group.objects.count() == 1


@anyones
def test_nor_does_that_of_a_lost_lock() -> None:
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    with transaction.atomic():
        write()
        locks.close_all()
        assert grant.lost
        grant.release()


@anyones
def test_an_exit_stays_one() -> None:
    release = by_grant(locks.lock("product_1"))
    with told("of the view", SystemExit), transaction.atomic():
        write()
        try:
            raise SystemExit("of the view")
        finally:
            release()
    assert is_rolled_back()
