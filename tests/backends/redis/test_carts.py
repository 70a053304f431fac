"""Carts of processes in different orders, of which one dies halfway: the others get through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

import distlock
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key, owner_in

CART = """
import sys, distlock
with distlock.connect(sys.argv[1], ttl=2, timeout=60).lock(*sys.argv[2:]):
    print("in", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def cart(server: RedisServer, *names: str) -> Iterator[subprocess.Popen[str]]:
    """A process that locks *names* until it is told a line."""
    command = [sys.executable, "-c", CART, server.url, *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def owner(server: RedisServer, name: str) -> str | None:
    return owner_in(server.client.get(hold_key(f":{name}")))


def waiting(server: RedisServer, name: str) -> int:
    return int(server.client.llen(f"{hold_key(f':{name}')}:queue"))


@pytest.mark.fault("F41")
def test_a_cart_whose_process_is_killed_halfway_costs_the_others_its_ttl(own_server: RedisServer) -> None:
    with closing(distlock.connect(own_server.url)) as locks, ExitStack() as processes:
        grant = locks.lock("b").acquire()
        assert grant
        dies = processes.enter_context(cart(own_server, "c", "b", "a"))
        eventually(lambda: owner(own_server, "a") and waiting(own_server, "b"), "it is halfway")
        others = [processes.enter_context(cart(own_server, *names)) for names in ("ba", "cab")]
        eventually(lambda: waiting(own_server, "a") == 2, "the others wait behind it")
        dies.kill()
        grant.release()
        with ThreadPoolExecutor(2) as pool:
            for told in [pool.submit(process.communicate, "done\n", 60) for process in others]:
                assert told.result()[0] == "in\n"
        with locks.lock("a", "b", "c", timeout=30):
            pass


@pytest.mark.fault("F41", control=True)
def test_carts_that_lock_in_their_own_orders_wait_for_each_other(own_server: RedisServer) -> None:
    one, two = ([own_server.client.lock(name, timeout=60) for name in names] for names in ("ab", "ba"))
    assert one[0].acquire()
    assert two[0].acquire()
    with ThreadPoolExecutor(2) as pool:
        got = pool.map(lambda lock: lock.acquire(blocking_timeout=2), (one[1], two[1]))
        assert list(got) == [False, False]
