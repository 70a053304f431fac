"""Two instances of a shop sell out while servers are killed, or forget."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from distlock import clock
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Instance, Stock, database, started, stock
from tests.redis_server import eventually
from tests.topologies.redlock.five import Five

__all__ = ["database", "stock"]

STOCK, ENOUGH = 300, 40
FENCE = pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])


class Rush:
    """*instances* sell until nothing is left. Threads hear what they say, and when each sale was."""

    def __init__(self, instances: list[Instance]) -> None:
        self.sold: list[float] = []
        self._answers: list[str] = []
        self._pool = ThreadPoolExecutor(len(instances))
        for instance in instances:
            instance.tell("rush")
        self._heard = [self._pool.submit(self._hear, instance) for instance in instances]

    def _hear(self, instance: Instance) -> None:
        for answer in iter(instance.says, "done"):
            self._answers.append(answer)
            if answer == "answered 200":
                self.sold.append(clock.now())

    def wait_for(self, sold: int) -> None:
        eventually(lambda: len(self.sold) >= sold, f"{sold} are sold")

    def end(self) -> list[str]:
        for heard in self._heard:
            heard.result()
        self._pool.shutdown()
        return self._answers

    def longest_gap(self, since: float) -> float:
        """Seconds in which nobody sold anything, after *since*."""
        moments = [since, *(moment for moment in sorted(self.sold) if moment > since)]
        return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


def two_instances(database: str, url: str, fence: bool) -> list[Order]:
    return [Order(face, database, url, face[0], fence, ttl=1.0, timeout=10.0) for face in ("django", "flask")]


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
