"""SIGKILL while COMMIT is on its way: one order or none, and the next holder goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import make_url

from tests.backends.redis.proxy import Proxy
from tests.cgroups import short_of_memory
from tests.fence.instance import GIGABYTE, GREEDY, Order
from tests.fence.instances import Stock, database, started, stock
from tests.fence.pairs import LOST, SOLD, SOLD_OUT
from tests.redis_server import RedisServer, eventually, redis_server

__all__ = ["database", "redis_server", "stock"]

#: Seconds. The holder that is killed costs them.
TTL = 2.0
#: What the next holder waits at most, seconds.
PATIENCE = 30.0


@pytest.mark.fault("F01")
@pytest.mark.parametrize("arrives", [True, False], ids=["it arrives", "it is lost"])
@pytest.mark.parametrize("face", ["django", "flask"])
def test_a_holder_that_is_killed_while_its_commit_is_on_the_way_has_sold_one_piece_or_none(
    database: str, stock: Stock, redis_server: RedisServer, face: str, arrives: bool
) -> None:
    stock.put(1)
    url = make_url(database)
    assert url.port
    way = Proxy(url.port)
    beside = url.set(port=way.port).render_as_string(hide_password=False)
    orders = [
        Order(face, place, redis_server.url, name, True, TTL, PATIENCE)
        for place, name in ((beside, "a"), (database, "b"))
    ]
    try:
        with started(*orders) as (a, b):
            a.tell("sell before COMMIT")
            while (said := a.says()) != "at before COMMIT":
                assert said == LOST
                a.tell("sell before COMMIT")
            way.cut_off(False)
            a.tell("go on")
            eventually(lambda: b"COMMIT" in way.kept, "COMMIT is on its way")
            a.kill()
            if arrives:
                way.flow()
            else:
                way.fail_over(url.port)
            b.tell("sell")
            assert b.says() == (SOLD_OUT if arrives else SOLD)
    finally:
        way.close()
    assert (stock.sellers(), stock.left()) == ("a" if arrives else "b", 0)


@pytest.mark.fault("F40")
@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "not fenced"])
def test_a_holder_that_the_kernel_kills_for_its_memory_has_sold_nothing(
    database: str, stock: Stock, redis_server: RedisServer, fence: bool
) -> None:
    stock.put(1)
    orders = [Order("django", database, redis_server.url, name, fence, TTL, PATIENCE) for name in "ab"]
    with started(*orders) as (a, b):
        with short_of_memory(a.pid, GIGABYTE // 8) as kills:
            a.tell("sell after the read")
            while (said := a.says()) != "at after the read":
                assert said == LOST
                a.tell("sell after the read")
            a.tell(GREEDY)
            eventually(lambda: kills() == 1, "it was killed")
        b.tell("sell")
        assert b.says() == SOLD
    assert (stock.sellers(), stock.left()) == ("b", 0)


FOR_EVER = """
import sys, redis
print(redis.Redis(port=int(sys.argv[1])).lock("product_1").acquire(), flush=True)
sys.stdin.read()
"""


@pytest.mark.fault("F01", "F40", control=True)
def test_a_lock_without_a_lease_is_kept_by_a_killed_process(redis_server: RedisServer) -> None:
    command = [sys.executable, "-c", FOR_EVER, str(redis_server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "True\n"
        process.kill()
    assert redis_server.client.lock("product_1").acquire(blocking_timeout=TTL) is False
    assert redis_server.client.pttl("product_1") == -1
    redis_server.client.delete("product_1")
