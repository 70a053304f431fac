"""A holder that Redis does not answer, or whose Redis stands still: its own deadline ends its lock.

The controls are the same holders without a look at the lease.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock import clock
from tests.backends.redis.proxy import Proxy
from tests.databases import Databases
from tests.fence.pairs import LOST, SHORT, SOLD, SOLD_OUT, Pair, pair
from tests.redis_server import RedisServer, eventually, own_server, stand_still
from tests.stored import hold_key, owner_in

__all__ = ["own_server"]

HOLD = hold_key("stalled:product_1")


@pytest.fixture
def way(own_server: RedisServer) -> Iterator[Proxy]:
    """The way of `a` to Redis."""
    made = Proxy(own_server.port)
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["it looks", "nothing looks"])
def looks(request: pytest.FixtureRequest) -> bool:
    """Whether `a` looks at its lease before COMMIT. A view that commits by itself does not, unless fenced."""
    return bool(request.param)


@pytest.fixture
def two(databases: Databases, own_server: RedisServer, way: Proxy, looks: bool) -> Iterator[Pair]:
    site = (databases("postgresql", "cutoff"), own_server.url, "django", "django")
    yield from pair(site, fence=False, atomic=looks, way=way.url)


def is_held(server: RedisServer) -> bool:
    return owner_in(server.client.get(HOLD)) is not None


@pytest.mark.fault("F18")
@pytest.mark.fault("F18", control=True)
@pytest.mark.parametrize("cut", [(True,), (False,), (True, False)], ids=["replies", "requests", "both"])
def test_a_holder_that_is_cut_off_for_longer_than_its_lease_does_not_commit(
    two: Pair, way: Proxy, looks: bool, cut: tuple[bool, ...]
) -> None:
    two.halt_at("after the read")
    way.cut_off(*cut)
    assert two.sell() == SOLD
    two.a.tell("go on")
    assert two.a.says() == (LOST if looks else SOLD)
    assert two.stock.sellers() == ("b" if looks else "ba")
    way.flow()
    # It is used again.
    assert two.sell() == SOLD_OUT
    two.a.tell("sell")
    assert two.a.says() == SOLD_OUT


@pytest.mark.fault("F11")
@pytest.mark.fault("F11", control=True)
def test_where_redis_stands_still_the_deadline_of_the_holder_itself_ends_its_lock(
    two: Pair, own_server: RedisServer, looks: bool
) -> None:
    two.halt_at("after the read")
    own_server.pause()
    end = clock.now() + 2 * SHORT
    eventually(lambda: clock.now() > end, "two leases are over")
    if looks:
        # Nobody can tell it.
        two.a.tell("go on")
        assert two.a.says() == LOST
        own_server.resume()
        assert two.sell() == SOLD
    else:
        own_server.resume()
        assert two.sell() == SOLD
        two.a.tell("go on")
        assert two.a.says() == SOLD
    assert two.stock.sellers() == ("b" if looks else "ba")


# -- a reply that waits in the socket of a process that stands still --------------------------------


def waits_to_be_read(port: int) -> bool:
    """Return whether data has arrived, and was not read, at a socket that is connected to *port*."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[2].endswith(f":{port:04X}") and not line[4].endswith(":00000000") for line in lines)


@pytest.mark.fault("F03")
@pytest.mark.parametrize("looks", [True], indirect=True)
def test_a_grant_that_waited_in_the_socket_for_longer_than_its_lease_is_none(
    two: Pair, way: Proxy, own_server: RedisServer
) -> None:
    # It has connected.
    two.halt_at("before release")
    two.a.tell("go on")
    assert two.a.says() == SOLD
    eventually(lambda: not is_held(own_server), "it has given the lock back")

    two.stock.put(1)
    way.cut_off(True)
    two.a.tell("sell")
    eventually(lambda: is_held(own_server), "Redis has granted the lock")
    two.a.stop()
    way.flow()
    eventually(lambda: waits_to_be_read(way.port), "the reply waits in its socket")
    assert two.sell() == SOLD
    two.a.go_on()
    assert two.a.says() in {LOST, SOLD_OUT}
    assert two.stock.sellers() == "b"


WITH_REDIS_PY = """
import sys, redis
client = redis.Redis(port=int(sys.argv[1]), socket_timeout=60)
client.ping()
print("ready", flush=True)
sys.stdin.readline()
print(client.lock("product_1", timeout=float(sys.argv[2])).acquire(blocking=False), flush=True)
"""


@pytest.mark.fault("F03", control=True)
def test_a_lock_that_takes_the_reply_for_a_grant_whenever_it_comes_is_held_by_two(
    own_server: RedisServer, way: Proxy
) -> None:
    command = [sys.executable, "-c", WITH_REDIS_PY, str(way.port), str(SHORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        way.cut_off(True)
        process.stdin.write("go on\n")
        process.stdin.flush()
        eventually(lambda: own_server.client.exists("product_1"), "Redis has granted the lock")
        stand_still(process)
        way.flow()
        eventually(lambda: waits_to_be_read(way.port), "the reply waits in its socket")
        assert own_server.client.lock("product_1", timeout=60).acquire(blocking_timeout=30)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "True\n"
