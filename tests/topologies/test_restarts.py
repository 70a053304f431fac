"""Two instances of a shop sell out while the server of their locks is restarted."""

from __future__ import annotations

import pytest

from distlock import clock
from loadtest.servers.databases import own_mariadb, own_postgresql
from loadtest.servers.lock_services import prepare
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.topologies.rush import Rush, two_instances

__all__ = ["database", "stock"]

STOCK, ENOUGH = 400, 40
SERVERS = {"PostgreSQL": own_postgresql, "MariaDB": own_mariadb}


@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
@pytest.mark.parametrize("which", SERVERS)
def test_the_server_is_restarted_in_the_middle_of_a_rush(
    database: str, stock: Stock, which: str, fence: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(STOCK)
    with SERVERS[which]() as server:
        prepare(server.url)
        with started(*two_instances(database, server.url, fence)) as instances:
            rush = Rush(instances)
            rush.wait_for(ENOUGH)
            began = clock.now()
            server.restart()
            answers = rush.end()
    sold = len(stock.sales())
    with capsys.disabled():
        print(f"\n{which} restarted: {rush.longest_gap(began):.3f} s without service, sold {sold}.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert set(stock.sellers()) == {"d", "f"}
    if fence:
        assert (sold, stock.left()) == (STOCK, 0)
    else:
        assert sold >= STOCK
