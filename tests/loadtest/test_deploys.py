"""gunicorn reloads, shuts down and replaces workers in mid-sale: no lock waits for the end of its lease."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import psutil
import pytest

import distlock
from demo_shop.configuration import Configuration
from distlock.operate import break_lock, inspect
from loadtest.servers.processes import ChildProcess
from loadtest.stack import Stack
from tests.loadtest.test_sudden_death import PAUSE, Crowd, eventually, freeze_while_it_holds, sold

#: Longer than the test: a lock that a worker left behind would refuse each buyer with 423.
TTL = 60.0
STOCK = 100


def workers_of(instance: ChildProcess) -> set[int]:
    return {child.pid for child in psutil.Process(instance.process.pid).children()}


def is_free(stack: Stack, patience: float) -> bool:
    """Return whether the lock of the sale can be acquired within *patience* seconds."""
    with closing(distlock.connect(stack.shop.lock, prefix="shop")) as locks:
        grant = locks.lock("product_1").acquire(timeout=patience)
        if grant is not None:
            grant.release()
        return grant is not None


@pytest.mark.fault("F06")
@pytest.mark.parametrize("how", ["HUP", "TERM", "max_requests"])
def test_a_worker_that_ends_in_order_costs_no_lease(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "max_requests":
        monkeypatch.setenv("GUNICORN_CMD_ARGS", "--max-requests 30")
    shop = Configuration(guard="distributed", stock=STOCK, pause=PAUSE, lock_ttl=TTL)
    with Stack(("django", "flask"), shop, "redis") as stack:
        instance = stack.instances[0]
        first = workers_of(instance)
        crowd = Crowd(stack.front.port)
        assert eventually(lambda: sold(stack) >= 10, 30)
        if how != "max_requests":
            os.kill(instance.process.pid, signal.Signals[f"SIG{how}"])
        crowd.join()
        if how == "TERM":
            assert instance.process.wait(30) == 0
        else:
            assert eventually(lambda: bool(workers_of(instance)) and not workers_of(instance) & first, 30)
        assert is_free(stack, 30)
        ledger = stack.ledger()
    # A buyer may meet a server that hangs up, but nobody waits in vain.
    assert crowd.statuses <= {200, 409, 502}
    assert ledger.stock == 0
    assert sorted(order.stock_seen for order in ledger.orders) == list(range(1, STOCK + 1))
    assert set(crowd.orders) <= {order.number for order in ledger.orders}


@pytest.mark.fault("F06", control=True)
def test_a_worker_that_is_killed_leaves_its_lock_to_the_lease() -> None:
    shop = Configuration(guard="distributed", stock=STOCK, pause=PAUSE, lock_ttl=TTL)
    with Stack(("django", "flask"), shop, "redis") as stack:
        crowd = Crowd(stack.front.port)
        assert eventually(lambda: sold(stack) >= 10, 30)
        freeze_while_it_holds(stack, stack.instances[0], patience=3.0)
        for worker in workers_of(stack.instances[0]):
            os.kill(worker, signal.SIGKILL)
        assert not is_free(stack, 1)
        # An operator breaks it, so that the buyers can go home.
        with closing(distlock.connect(stack.shop.lock, prefix="shop")) as locks:
            assert break_lock(locks.namespace, inspect(locks.namespace, "product_1"), "a test")
        stack.instances[0].thaw()
        crowd.join()
