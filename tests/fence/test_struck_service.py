"""Redis is struck in the middle of a sale, in every way: with the fence each piece is sold once.

The controls are the same sales without a lock.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.redis.proxy import Proxy
from tests.fence.instance import Order
from tests.fence.instances import Stock, database, stock
from tests.fence.instances import started as instances_of
from tests.fence.pairs import SOLD_OUT
from tests.redis_server import eventually, started
from tests.shifted_clock import HOUR, ShiftedRedis
from tests.small_disk import fill_until_it_refuses, on_disk, small_disk
from tests.soak.services.proxy import Proxy as ResettingProxy
from tests.topologies.rush import Rush

__all__ = ["database", "stock"]

STOCK = 120
ENOUGH = 20
REFUSED = "answered 503 lock_backend_unavailable"


class StruckRedis(ShiftedRedis):
    """A server with an append-only file on a small disk of its own, if we have the right to mount one."""

    def __init__(self, disk: Path) -> None:
        super().__init__(*on_disk(disk))
        self.disk = disk
        self.configuration_file = (str(self.folder / "redis.conf"),)
        (self.folder / "redis.conf").touch()

    def run_script(self, seconds: float) -> None:
        """Run a script that lasts so long."""
        self.client.eval(
            "local began = redis.call('TIME') repeat local now = redis.call('TIME') "
            "until now[1] - began[1] + (now[2] - began[2]) / 1e6 > tonumber(ARGV[1])",
            0,
            str(seconds),
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StruckRedis]:
    with small_disk(tmp_path) as disk:
        yield from started(StruckRedis(disk))  # type: ignore[misc]


Strike = Callable[[StruckRedis, Rush], None]


def kill_it_and_start_it_again(server: StruckRedis, rush: Rush) -> None:
    server.restart()


def fill_its_disk_for_a_moment(server: StruckRedis, rush: Rush) -> None:
    filler = fill_until_it_refuses(server, server.disk)
    # Buyers without a lock never ask it.
    eventually(lambda: REFUSED in rush.answers or SOLD_OUT in rush.answers, "a buyer is refused")
    filler.unlink()


def set_its_clock_ahead(server: StruckRedis, rush: Rush) -> None:
    server.set_clock(HOUR)


def set_its_clock_back(server: StruckRedis, rush: Rush) -> None:
    server.set_clock(-HOUR)


def let_its_clock_go_twice_as_fast(server: StruckRedis, rush: Rush) -> None:
    server.set_clock(0, pace=2.0)


def block_it_by_a_script(server: StruckRedis, rush: Rush) -> None:
    server.run_script(seconds=1.5)


def let_it_evict_keys(server: StruckRedis, rush: Rush) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-random")
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 100_000)
    before = server.client.info("stats")["evicted_keys"]
    for number in itertools.count():
        server.client.set(f"cache:{number}", "value" * 200)
        if server.client.info("stats")["evicted_keys"] > before + 500:
            break
    server.client.config_set("maxmemory", 0)


def rewrite_its_configuration(server: StruckRedis, rush: Rush) -> None:
    server.client.config_set("slowlog-max-len", 77)
    server.client.config_rewrite()
    assert "slowlog-max-len 77" in Path(*server.configuration_file).read_text()


STRIKES: list[Strike] = [
    kill_it_and_start_it_again,
    fill_its_disk_for_a_moment,
    set_its_clock_ahead,
    set_its_clock_back,
    let_its_clock_go_twice_as_fast,
    block_it_by_a_script,
    let_it_evict_keys,
    rewrite_its_configuration,
]


def rush_for(
    stock: Stock, pieces: int, orders: list[Order], strike: Callable[[Rush], object] = lambda rush: None
) -> list[str]:
    """Sell *pieces*, and *strike* when some are sold. Returns what the requests were answered."""
    stock.put(pieces)
    with instances_of(*orders) as instances:
        rush = Rush(instances)
        rush.wait_for(ENOUGH)
        strike(rush)
        return rush.end()


def two(database: str, url: str, lock: bool) -> list[Order]:
    """Two instances; their views have a fenced lock, or none at all."""
    return [
        Order(face, database, url, face[0], lock, ttl=1.0, timeout=10.0, lock=lock)
        for face in ("django", "flask")
    ]


def assert_each_is_sold_once(stock: Stock, pieces: int) -> None:
    sales = [fence for _, *fence in stock.sales()]
    assert (len(sales), stock.left()) == (pieces, 0)
    assert sales == sorted(sales)


@pytest.mark.fault("F10", "F11", "F12", "F14", "F15", "F16")
@pytest.mark.fault("F10", "F11", "F12", "F14", "F15", "F16", control=True)
@pytest.mark.parametrize("lock", [True, False], ids=["fenced", "no lock"])
@pytest.mark.parametrize("strike", STRIKES, ids=[strike.__name__ for strike in STRIKES])
def test_a_sale_in_which_redis_is_struck_needs_the_lock_and_its_fence(
    database: str, stock: Stock, server: StruckRedis, strike: Strike, lock: bool
) -> None:
    # Not all may be sold before the disk is full.
    pieces = 2 * STOCK if lock and strike is fill_its_disk_for_a_moment else STOCK
    answers = rush_for(stock, pieces, two(database, server.url, lock), lambda rush: strike(server, rush))
    if lock:
        assert_each_is_sold_once(stock, pieces)
    else:
        assert len(stock.sales()) > pieces
    assert REFUSED in answers or not (lock and strike is fill_its_disk_for_a_moment)


def reset_all(way: ResettingProxy) -> None:
    for _ in range(40):
        way.cut_all(resets=True)
        time.sleep(0.02)


@pytest.mark.fault("F19")
@pytest.mark.fault("F19", control=True)
@pytest.mark.parametrize("lock", [True, False], ids=["fenced", "no lock"])
def test_a_sale_in_a_flood_of_resets_needs_the_lock_and_its_fence(
    database: str, stock: Stock, server: StruckRedis, lock: bool
) -> None:
    with ResettingProxy(server.url) as way:
        rush_for(stock, STOCK, two(database, way.url, lock), lambda rush: reset_all(way))
    if lock:
        assert_each_is_sold_once(stock, STOCK)
    else:
        assert len(stock.sales()) > STOCK


#: A slow network's delays each way, seconds; and how many are sold over it.
JITTER, FEW = 0.06, 40


@pytest.mark.fault("F17")
@pytest.mark.fault("F17", control=True)
@pytest.mark.parametrize("lock", [True, False], ids=["fenced", "no lock"])
def test_a_sale_over_a_network_with_delay_and_jitter_needs_the_lock_and_its_fence(
    database: str, stock: Stock, server: StruckRedis, lock: bool
) -> None:
    way, delays = Proxy(server.port), random.Random(1)
    way.late = lambda: delays.uniform(0, JITTER)
    try:
        rush_for(stock, FEW, two(database, way.url, lock))
    finally:
        way.close()
    if lock:
        assert_each_is_sold_once(stock, FEW)
    else:
        assert len(stock.sales()) > FEW
