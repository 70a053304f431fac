"""Two instances of a shop sell out while the primary is killed, or replaced."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from distlock import clock
from loadtest.servers.processes import StackError
from loadtest.servers.redis_servers import tell
from tests.backends.redis.proxy import Proxy
from tests.backends.sentinel.liar import Liar
from tests.fence.instance import SHOPPERS
from tests.fence.instances import Stock, database, started, stock
from tests.packets import cut_off
from tests.redis_server import eventually
from tests.topologies.rush import Rush, two_instances
from tests.topologies.sentinel.watched import Calm

__all__ = ["database", "stock"]

#: A failover that somebody asks for takes a second, in which the shop goes on: more than that is left then.
STOCK, ENOUGH = 800, 40
FENCE = pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])


@pytest.mark.fault("F20", "F22")
@pytest.mark.parametrize("how", ["killed", "replaced"])
def test_the_primary_is_lost_in_the_middle_of_a_rush(
    database: str, stock: Stock, watched: Calm, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stock.put(STOCK)
    former = watched.primary()
    with started(*two_instances(database, watched.url, fence=True)) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        began = clock.now()
        if how == "killed":
            watched.kill_primary()
        else:
            watched.fail_over()
        answers = rush.end()
    gap = rush.longest_gap(began)
    with capsys.disabled():
        print(f"\nSentinel, the primary {how}: {gap:.3f} s without service.")
    assert answers.count("answered 409") == len(instances) * SHOPPERS
    assert (len(stock.sales()), stock.left()) == (STOCK, 0)
    assert set(stock.sellers()) == {"d", "f"}
    eventually(lambda: watched.primary() != former, "there is another primary")


#: In each of so many sales the primary is replaced; a sale has so many pieces.
TIMES, PIECES = 10, 200


def begins_a_failover(watched: Calm) -> bool:
    """Return False while no replica is up to date, or the last failover goes on."""
    try:
        watched.fail_over()
    except StackError:
        return False
    return True


@pytest.mark.fault("F22")
def test_the_primary_is_replaced_ten_times_in_a_row(database: str, stock: Stock, watched: Calm) -> None:
    sellers = set[str]()
    with started(*two_instances(database, watched.url, fence=True)) as instances:
        for _ in range(TIMES):
            stock.put(PIECES)
            former = watched.primary()
            rush = Rush(instances)
            rush.wait_for(ENOUGH)
            eventually(lambda: begins_a_failover(watched), "a replica may take over", pause=0.1)
            rush.end()
            sales = [fence for _, *fence in stock.sales()]
            assert (len(sales), stock.left()) == (PIECES, 0)
            assert sales == sorted(sales)
            sellers |= set(stock.sellers())
            eventually(lambda former=former: watched.primary() != former, "there is another primary")  # type: ignore[misc]
            eventually(lambda: watched.replicas(), "one of the others follows it")
    assert sellers == {"d", "f"}


@pytest.mark.fault("F21")
@pytest.mark.fault("F21", "F22", control=True)
@FENCE
def test_a_former_primary_that_serves_an_instance_sells_pieces_twice_unless_they_are_fenced(
    database: str, stock: Stock, watched: Calm, fence: bool
) -> None:
    """As where the network cuts it off, together with an instance and a sentinel."""
    stock.put(STOCK)
    former = watched.primary()
    assert tell(former, "ACL", "SETUSER", "default", "-replicaof", "-slaveof").startswith("+OK")
    beside = Liar(former)
    one, two = two_instances(database, watched.url, fence)
    two = replace(two, redis=f"redis+sentinel://127.0.0.1:{beside.port}/shop")
    with started(one, two) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        watched.fail_over()
        rush.end()
    beside.close()
    assert set(stock.sellers()) == {"d", "f"}
    sales = [fence for _, *fence in stock.sales()]
    if fence:
        assert (len(sales), stock.left()) == (STOCK, 0)
        assert sales == sorted(sales)
    else:
        assert len(sales) > STOCK


#: The address of the instance and the sentinel on the side of the former primary.
BESIDE = "127.0.0.9"
#: The sentinels may take long to notice. The sale goes on until each side has sold some pieces after that.
ENDLESS, SOME = 1_000_000, 3
#: Seconds for a state on a busy machine.
LONG = 240.0


@pytest.mark.fault("F21")
@pytest.mark.fault("F21", control=True)
@FENCE
def test_the_network_cuts_the_primary_off_with_an_instance_and_both_sides_sell(
    database: str, stock: Stock, watched: Calm, fence: bool
) -> None:
    """The kernel drops all packets between it and the other servers. Both sides reach the database."""
    stock.put(ENDLESS)
    former = watched.primary()
    # Some versions of Redis talk to no other address of this host than 127.0.0.1 in this mode.
    assert tell(former, "CONFIG", "SET", "protected-mode", "no").startswith("+OK")
    way = Proxy(former, BESIDE)
    beside = Liar(way.port)
    one, two = two_instances(database, watched.url, fence)
    two = replace(two, redis=f"redis+sentinel://127.0.0.1:{beside.port}/shop")
    with closing(way), closing(beside), started(one, two) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        cut_off(former, BESIDE)
        assert tell(former, "PING") == ""
        watched.notice(1000)
        eventually(lambda: watched.primary() != former, "the sentinels name another primary", LONG)
        # On a busy machine they would take the next primary for dead, too, and so on.
        watched.notice(60_000)
        before = len(stock.sales())

        def both_sell() -> bool:
            sellers = [seller for seller, _, _ in stock.sales()[before:]]
            return min(sellers.count("d"), sellers.count("f")) >= SOME

        eventually(both_sell, "each side sells under the lock of its own primary", LONG, pause=0.2)
    numbers = [fence for _, *fence in stock.sales()]
    if fence:
        assert len(numbers) == ENDLESS - stock.left()
        assert numbers == sorted(numbers)
    else:
        assert len(numbers) > ENDLESS - stock.left()
