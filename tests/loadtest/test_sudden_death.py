"""SIGKILL of one instance in mid-sale, while it holds the lock."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

import pytest

from demo_shop.configuration import Configuration
from loadtest.servers.processes import ChildProcess
from loadtest.stack import Stack

TTL = 2.0
STOCK = 60
#: Long enough that somebody is inside nearly always, short enough that a few purchases take a moment only.
PAUSE = 0.02
BUYERS = 12


class Crowd:
    """Buyers who go on until the shop is sold out, whatever answers they get; they note their orders."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.orders: list[str] = []
        self.statuses: set[int] = set()
        self.threads = [threading.Thread(target=self.buy) for _ in range(BUYERS)]
        for thread in self.threads:
            thread.start()

    def buy(self) -> None:
        status = 0
        while status != 409:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
                connection.request("POST", "/products/1/reduce")
                answer = connection.getresponse()
                status, said = answer.status, answer.read()
            self.statuses.add(status)
            if status == 200:
                self.orders.append(json.loads(said)["order"])

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads)


def eventually(seen: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not seen():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def sold(stack: Stack) -> int:
    return len(stack.ledger().orders)


def freeze_while_it_holds(stack: Stack, victim: ChildProcess, patience: float = 10 * PAUSE) -> None:
    """Stop *victim* in a moment in which the others can't buy for *patience* seconds: it is the holder."""

    def frozen_as_holder() -> bool:
        os.killpg(victim.process.pid, signal.SIGSTOP)
        # Whatever was under way in the other instance may still end; after that nothing moves.
        before = sold(stack)
        if not eventually(lambda: sold(stack) > before + 1, patience):
            return True
        os.killpg(victim.process.pid, signal.SIGCONT)
        return False

    assert eventually(frozen_as_holder, 10)


@pytest.mark.fault("F01")
@pytest.mark.parametrize(
    ("backend", "patience"), [("file", 1.0), ("redis", TTL + 1.0)], ids=["file", "redis"]
)
def test_the_sale_goes_on_after_the_holder_is_killed(backend: str, patience: float) -> None:
    shop = Configuration(guard="distributed", stock=STOCK, pause=PAUSE, lock_ttl=TTL)
    with Stack(("django", "flask"), shop, backend) as stack:
        crowd = Crowd(stack.front.port)
        assert eventually(lambda: sold(stack) >= 10, 30)
        victim = stack.instances[0]
        freeze_while_it_holds(stack, victim)
        victim.kill()
        killed = datetime.now(UTC)
        crowd.join()
        ledger = stack.ledger()
    after = [order for order in ledger.orders if order.created_at > killed]
    assert after, "the victim was killed too late: everything was sold already"
    assert (after[0].created_at - killed).total_seconds() <= patience
    assert {order.instance for order in after} == {"flask-2"}
    # Every unit was sold once, and what a buyer was told is so.
    assert ledger.stock == 0
    assert sorted(order.stock_seen for order in ledger.orders) == list(range(1, STOCK + 1))
    assert set(crowd.orders) <= {order.number for order in ledger.orders}
