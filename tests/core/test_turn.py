"""How long a process passes a lock on among its own callers, while another process waits."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import pytest

import distlock
from distlock import ConfigurationError, Locks
from distlock.testing.waits import engine_of


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


@pytest.fixture
def other(url: str) -> Iterator[Locks]:
    """Another process, to the lock service."""
    other = distlock.connect(url, timeout=60)
    yield other
    other.close()


def order(mine: Locks, other: Locks) -> list[str]:
    """Return who gets a held lock after whom: a caller of *other* came first, and then one of *mine*."""
    got: list[str] = []
    threads: list[threading.Thread] = []

    def wait(locks: Locks, word: str) -> None:
        with locks.lock("product_1"):
            got.append(word)

    with mine.lock("product_1"):
        for locks, word in ((other, "other"), (mine, "mine")):
            threads.append(threading.Thread(target=wait, args=(locks, word)))
            threads[-1].start()
            while not engine_of(locks).queues.waiting:
                pass
    for thread in threads:
        thread.join()
    return got


@pytest.mark.parametrize(("turn", "expected"), [(60.0, ["mine", "other"]), (0, ["other", "mine"])])
def test_a_turn_bounds_what_passes_inside_a_process(
    url: str, other: Locks, turn: float, expected: list[str]
) -> None:
    mine = distlock.connect(url, turn=turn, timeout=60)
    assert order(mine, other) == expected
    mine.close()


@pytest.mark.parametrize("turn", [-1, "soon", True, float("nan")])
def test_what_is_no_time_is_refused(url: str, turn: object) -> None:
    with pytest.raises(ConfigurationError, match="turn="):
        distlock.connect(url, turn=turn)  # type: ignore[arg-type]
