"""A shop sells out while its ensemble loses a server, or is restarted one server after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock import clock
from tests.fence.instance import SHOPPERS, Order
from tests.fence.instances import Stock, database, started, stock
from tests.fence.test_failover import hear
from tests.topologies.rush import Rush, two_instances
from tests.topologies.zookeeper.test_ensemble import Ensemble, ensemble
from tests.zookeeper_server import ZooKeeperServer

__all__ = ["database", "ensemble", "stock"]

STOCK, SOME = 300, 50
#: Without a lock many buyers get the same piece.
FEW = 60
#: So many that the last server is restarted long before they are sold.
MUCH = 800
FENCE = pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])


def busiest_follower(ensemble: Ensemble) -> ZooKeeperServer:
    """That to which most are connected."""
    leader = ensemble.leader()
    followers = [server for server in ensemble.servers if server is not leader]
    return max(followers, key=lambda one: one.tell("cons").count("sid=0x"))


LOST: dict[str, Callable[[Ensemble], None]] = {
    "the leader": lambda ensemble: ensemble.leader().kill(),
    "a follower": lambda ensemble: busiest_follower(ensemble).kill(),
    "a follower with its data": lambda ensemble: ensemble.forget(busiest_follower(ensemble)),
    # The others elect another leader.
    "the leader for a while": lambda ensemble: ensemble.leader().pause(),
}


@pytest.mark.fault("F26", "F28", "F30")
@FENCE
@pytest.mark.parametrize("which", LOST)
def test_a_server_that_is_lost_costs_time_and_no_lock(
    database: str,
    stock: Stock,
    ensemble: Ensemble,
    which: str,
    fence: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stock.put(STOCK)
    with started(*two_instances(database, ensemble.url, fence)) as instances:
        rush = Rush(instances)
        rush.wait_for(SOME)
        killed = clock.now()
        LOST[which](ensemble)
        answers = rush.end()
    with capsys.disabled():
        print(f"\nZooKeeper, {which} lost: {rush.longest_gap(killed):.3f} s without service.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    # What a majority has written down survives: the lock alone keeps it exact.
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)


@pytest.mark.fault("F26", "F28", control=True)
@pytest.mark.parametrize("which", ["the leader", "the leader for a while"])
def test_without_a_lock_the_same_sale_oversells(
    database: str, stock: Stock, ensemble: Ensemble, which: str
) -> None:
    stock.put(FEW)
    with started(*two_instances(database, ensemble.url, fence=False, lock=False)) as instances:
        rush = Rush(instances)
        rush.wait_for(FEW // 4)
        LOST[which](ensemble)
        rush.end()
    assert len(stock.sales()) > FEW


@pytest.mark.fault("F30")
def test_an_ensemble_that_lost_its_data_sells_nothing_until_the_epoch_is_raised(
    database: str, stock: Stock, ensemble: Ensemble
) -> None:
    # A second leader has larger fences than all that a new ensemble can have.
    ensemble.leader().restart()
    stock.put(STOCK)
    old = Order("django", database, ensemble.url, "o", True, ttl=1.0)
    new = Order("flask", database, ensemble.url, "n", True, ttl=1.0, epoch=2)
    with started(old, new) as (before, after):
        before.tell("rush")
        hear([before], SOME)
        ensemble.forget()
        answers = list(iter(before.says, "done"))
        # The error says that FENCE_EPOCH has to be raised.
        assert answers.count("answered 500") == SHOPPERS
        sold = len(stock.sales())
        assert sold == SOME + answers.count("answered 200") < STOCK
        after.tell("rush")
        assert list(iter(after.says, "done")).count("answered 200") == STOCK - sold
    sales = [fence for _, *fence in stock.sales()]
    assert (len(sales), stock.left()) == (STOCK, 0)
    assert sales == sorted(sales)


@pytest.mark.fault("F30")
@pytest.mark.fault("F30", control=True)
@FENCE
def test_two_that_hold_one_lock_because_the_ensemble_forgot_the_first(
    database: str, stock: Stock, ensemble: Ensemble, fence: bool
) -> None:
    stock.put(1)
    a, b = (Order("django", database, ensemble.url, name, fence, ttl=60.0) for name in "ab")
    with started(a, b) as (first, second):
        first.tell("sell before COMMIT")
        assert first.says() == "at before COMMIT"
        first.stop()
        ensemble.forget()
        # It gets the lock, too, and waits for a row that the first one has written.
        second.tell("sell")
        stock.wait_for_a_waiter()
        first.tell("go on")
        first.go_on()
        answers = first.says(), second.says()
    assert answers[0] == "answered 200"
    assert (answers[1] == "answered 200", stock.sellers()) == ((False, "a") if fence else (True, "ab"))


@pytest.mark.fault("F26")
@FENCE
def test_a_rolling_restart_costs_time_and_no_lock(
    database: str, stock: Stock, ensemble: Ensemble, fence: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(MUCH)
    with started(*two_instances(database, ensemble.url, fence)) as instances:
        rush = Rush(instances)
        rush.wait_for(SOME)
        began = clock.now()
        # As one does it: the leader last.
        leader = ensemble.leader()
        for server in sorted(ensemble.servers, key=lambda one: one is leader):
            server.restart()
        ended = clock.now()
        answers = rush.end()
    with capsys.disabled():
        gap = f"{rush.longest_gap(began):.3f} s without service"
        print(f"\nZooKeeper, restarted in {ended - began:.1f} s, one server after the other: {gap}.")
    assert rush.sold[-1] > ended
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert (len(stock.sales()), stock.left()) == (MUCH, 0)
