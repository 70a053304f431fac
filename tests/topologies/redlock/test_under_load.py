"""Two instances of a shop sell out while servers are killed, or forget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distlock import clock
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.topologies.redlock.five import Five
from tests.topologies.rush import Rush, two_instances

__all__ = ["database", "stock"]

STOCK, ENOUGH = 300, 40
FENCE = pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])


@pytest.mark.fault("F25")
@FENCE
def test_two_of_five_are_killed_in_the_middle_of_a_rush(
    database: str, stock: Stock, own_five: Five, fence: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(STOCK)
    with started(*two_instances(database, own_five.url, fence)) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        own_five[1].kill()
        own_five[4].kill()
        killed = clock.now()
        answers = rush.end()
    with capsys.disabled():
        print(f"\nRedlock, two of five killed: {rush.longest_gap(killed):.3f} s without service.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)
    assert set(stock.sellers()) == {"d", "f"}


@contextmanager
def forgetting(servers: Five) -> Iterator[None]:
    """A majority loses its data, again and again."""
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.02):
            for server in servers[:3]:
                server.client.flushall()

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.fault("F25", control=True)
@FENCE
def test_a_majority_that_forgets_sells_pieces_twice_unless_they_are_fenced(
    database: str, stock: Stock, own_five: Five, fence: bool
) -> None:
    stock.put(STOCK)
    with (
        started(*two_instances(database, own_five.url, fence)) as instances,
        forgetting(own_five),
    ):
        Rush(instances).end()
    if fence:
        assert (len(stock.sales()), stock.left()) == (STOCK, 0)
    else:
        assert len(stock.sales()) > STOCK
