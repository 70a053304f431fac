"""What the tests of early releases share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from distlock import Lock
from distlock.errors import ConfigurationError
from django_distlock import locks

EARLY = "The lock 'product_1' was released inside a transaction of the database 'default' that began under it"


@pytest.fixture(autouse=True)
def configured(settings: Any) -> Iterator[None]:
    settings.DISTLOCK = "memory://released-early"
    yield
    locks.close_all()


anyones = pytest.mark.django_db(transaction=True)


def told(match: str = EARLY, kind: type[BaseException] = ConfigurationError) -> Any:
    return pytest.raises(kind, match=match)


def write(name: str = "sold") -> None:
    Group.objects.create(name=name)


def is_rolled_back() -> bool:
    return not connection.in_atomic_block and not Group.objects.exists() and connection.get_autocommit()


def by_grant(lock: Lock) -> Callable[[], None]:
    grant = lock.acquire()
    assert grant is not None
    return grant.release


def by_lock(lock: Lock) -> Callable[[], None]:
    assert lock.acquire() is not None
    return lock.release
