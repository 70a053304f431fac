"""A shop sells out while its ensemble loses its leader."""

from __future__ import annotations

import pytest

from distlock import clock
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.topologies.rush import Rush, two_instances
from tests.topologies.zookeeper.test_ensemble import Ensemble, ensemble

__all__ = ["database", "ensemble", "stock"]

STOCK = 300
SOME = 50


@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_a_leader_that_is_killed_costs_time_and_no_lock(
    database: str, stock: Stock, ensemble: Ensemble, fence: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(STOCK)
    with started(*two_instances(database, ensemble.url, fence)) as instances:
        rush = Rush(instances)
        rush.wait_for(SOME)
        killed = clock.now()
        ensemble.leader().kill()
        answers = rush.end()
    with capsys.disabled():
        print(f"\nZooKeeper, the leader killed: {rush.longest_gap(killed):.3f} s without service.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    # What a majority has written down survives: the lock alone keeps it exact.
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)
