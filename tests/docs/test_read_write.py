"""The lines of the page on read-write locks and semaphores, run in threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock.testing.waits import wait_for_waiters
from tests.web.quickstart import snippets

READ_WRITE, DOWNGRADE, SEMAPHORE = snippets("how-to/read-write.md")
PATIENCE = 20.0


@pytest.fixture
def page() -> dict[str, Any]:
    """What the lines of the page define."""
    names: dict[str, Any] = {"catalogue": {"pen": 1, "book": 2}}
    lines = READ_WRITE.replace("redis://localhost:6379/0", "memory://read-write-page")
    exec(lines + DOWNGRADE + SEMAPHORE, names)
    return names


def test_reports_run_together_and_an_import_alone(page: dict[str, Any], pool: ThreadPoolExecutor) -> None:
    locks: distlock.Locks = page["locks"]
    with locks.read_lock("catalogue"):
        assert [pool.submit(page["report"]).result(PATIENCE) for _ in range(3)] == [3, 3, 3]
        importing = pool.submit(page["import_prices"], {"pen": 5})
        wait_for_waiters(locks, 1)
        assert page["catalogue"]["pen"] == 1
    importing.result(PATIENCE)
    assert page["report"]() == 7


def test_an_import_counts_while_others_read(page: dict[str, Any], pool: ThreadPoolExecutor) -> None:
    reported = threading.Event()

    class Catalogue(dict[str, int]):
        def __len__(self) -> int:
            assert pool.submit(page["report"]).result(PATIENCE) == 12
            reported.set()
            return super().__len__()

    page["catalogue"] = Catalogue(page["catalogue"])
    assert page["import_and_count"]({"lamp": 9}) == 3
    assert reported.is_set()


def test_ten_at_a_time_call_the_gateway(page: dict[str, Any], pool: ThreadPoolExecutor) -> None:
    mutex, ten = threading.Lock(), threading.Barrier(10)
    inside, most = 0, 0

    def charge(order: str) -> str:
        nonlocal inside, most
        with mutex:
            inside += 1
            most = max(most, inside)
        ten.wait(PATIENCE)
        with mutex:
            inside -= 1
        return f"paid {order}"

    page["charge"] = charge
    paid = [pool.submit(page["pay"], str(order)) for order in range(30)]
    assert {one.result(PATIENCE) for one in paid} == {f"paid {order}" for order in range(30)}
    assert most == 10


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(40) as pool:
        yield pool
