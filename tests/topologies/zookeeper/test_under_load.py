"""A shop sells out while its ensemble loses a server, or is restarted one server after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock import clock
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.topologies.rush import Rush, two_instances
from tests.topologies.zookeeper.test_ensemble import Ensemble, ensemble
from tests.zookeeper_server import ZooKeeperServer

__all__ = ["database", "ensemble", "stock"]

STOCK, SOME = 300, 50
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
}


@pytest.mark.fault("F26")
@FENCE
@pytest.mark.parametrize("which", LOST)
def test_a_server_that_is_killed_costs_time_and_no_lock(
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
        print(f"\nZooKeeper, {which} killed: {rush.longest_gap(killed):.3f} s without service.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    # What a majority has written down survives: the lock alone keeps it exact.
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)


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
