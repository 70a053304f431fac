"""A client is made of an acquirer: what stands around another one, and what is done at the end of a block."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import distlock

_numbers = itertools.count()


class Noting:
    """Around *inner*: notes what is asked for, and refuses one name before anything is asked."""

    def __init__(self, inner: Any) -> None:
        self.namespace = inner.namespace
        self.asked: list[tuple[str, ...]] = []
        self._inner = inner

    def acquire(
        self, names: tuple[str, ...], parker: Any, seconds: float, ttl: float
    ) -> Generator[Any, Any, distlock.Grant | None]:
        self.asked.append(names)
        if "forbidden" in names:
            raise distlock.ConfigurationError("not this one")
        return (yield from self._inner.acquire(names, parker, seconds, ttl))


@pytest.fixture
def plain() -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://acquirer{next(_numbers)}", timeout=0)
    yield locks
    locks.close()


@pytest.fixture
def ends() -> list[tuple[str, ...]]:
    return []


@pytest.fixture
def locks(plain: distlock.Locks, ends: list[tuple[str, ...]]) -> distlock.Locks:
    """A client around *plain*. The end of a block on "dirty" finds something wrong."""

    def at_end(names: tuple[str, ...]) -> Generator[Any, Any, distlock.LockError | None]:
        yield from ()
        # The names are held still.
        assert plain.lock(*names).acquire() is None
        ends.append(names)
        return distlock.ConfigurationError("left open") if "dirty" in names else None

    return distlock.Locks(Noting(plain.acquirer), plain.timeout, at_end)


def noted(locks: distlock.Locks) -> list[tuple[str, ...]]:
    assert isinstance(locks.acquirer, Noting)
    return locks.acquirer.asked


def test_every_way_in_goes_through_the_acquirer(locks: distlock.Locks) -> None:
    async def in_asyncio() -> None:
        async with locks.lock("c"):
            pass

    with locks.lock("b", "a"):
        pass
    locks.lock("b").acquire()
    with locks.rlock("d"), locks.rlock("d", "e"):
        pass
    asyncio.run(in_asyncio())
    assert noted(locks) == [("a", "b"), ("b",), ("d",), ("e",), ("c",)]


def test_what_the_acquirer_refuses_is_not_asked_for(plain: distlock.Locks, locks: distlock.Locks) -> None:
    with pytest.raises(distlock.ConfigurationError, match="not this one"):
        locks.lock("a", "forbidden").__enter__()
    assert not plain.lock("a").locked()


def test_clients_of_one_namespace_give_out_one_lock(plain: distlock.Locks, locks: distlock.Locks) -> None:
    with locks.lock("a"):
        assert plain.lock("a").acquire() is None
        with pytest.raises(distlock.ConfigurationError, match="'with' block around this very code"):
            plain.lock("a").__enter__()
    with locks.rlock("r"), plain.rlock("r"):
        assert noted(locks)[-1] == ("r",)
    assert locks.namespace.is_same(plain.namespace)


def test_what_the_end_of_a_block_finds_is_raised_after_the_release(
    plain: distlock.Locks, locks: distlock.Locks, ends: list[tuple[str, ...]]
) -> None:
    with pytest.raises(distlock.ConfigurationError, match="left open"), locks.lock("dirty"):
        pass
    assert ends == [("dirty",)]
    assert not plain.lock("dirty").locked()


def test_what_the_block_itself_raises_is_raised(locks: distlock.Locks, ends: list[tuple[str, ...]]) -> None:
    with pytest.raises(KeyError), locks.lock("dirty"):
        raise KeyError
    assert ends == [("dirty",)]


def test_the_end_of_a_reentrant_lock_is_the_outermost_one(
    locks: distlock.Locks, ends: list[tuple[str, ...]]
) -> None:
    with locks.rlock("a"):
        with locks.rlock("a"):
            pass
        assert ends == []
    assert ends == [("a",)]


def test_a_release_is_no_end_of_a_block(locks: distlock.Locks, ends: list[tuple[str, ...]]) -> None:
    lock = locks.lock("a")
    assert lock.acquire()
    lock.release()
    assert ends == []
