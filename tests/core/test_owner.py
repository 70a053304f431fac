"""The owner of what is taken: a thread for as long as it lives, whatever number it has, or a task."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TypeVar

import pytest

import distlock
from distlock import owner
from distlock.testing.waits import engine_of, wait_until

T = TypeVar("T")


@pytest.fixture
def locks() -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{secrets.token_hex(4)}", timeout=60)
    yield locks
    locks.close()


@pytest.fixture
def one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads have the same number, as one has that of another which has ended."""
    monkeypatch.setattr(owner, "_running", threading.local())
    monkeypatch.setattr(owner, "threading", SimpleNamespace(get_ident=lambda: 1))


def in_thread(function: Callable[[], T]) -> T:
    """What *function* returns in a thread that ends with it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@pytest.mark.usefixtures("one_number")
def test_a_writer_waits_for_the_reader_of_an_ended_thread(locks: distlock.Locks) -> None:
    reader = in_thread(locks.read_lock("a").acquire)
    assert reader is not None
    assert locks.write_lock("a").acquire(timeout=0.05) is None
    reader.release()
    with locks.write_lock("a", timeout=0):
        pass


@pytest.mark.usefixtures("one_number")
def test_a_reader_does_not_pass_a_writer_because_of_an_ended_thread(locks: distlock.Locks) -> None:
    reader = in_thread(locks.read_lock("a").acquire)
    assert reader is not None
    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(locks.write_lock("a").acquire)
        try:
            wait_until(lambda: bool(engine_of(locks).queues.waiting), "the writer waits")
            assert locks.read_lock("a").acquire(timeout=0.05) is None
        finally:
            reader.release()
        written = writer.result()
    assert written is not None
    written.release()


@pytest.mark.usefixtures("one_number")
def test_a_reentrant_lock_lets_no_thread_in_because_of_an_ended_one(locks: distlock.Locks) -> None:
    grant = in_thread(locks.rlock("a").acquire)
    assert grant is not None
    assert not locks.rlock("a").owned()
    assert locks.rlock("a").acquire(timeout=0.05) is None
    grant.release()
