"""What an operator sees of the locks of other processes, and of this one."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import distlock
from distlock.backends.inspectable import MOMENT
from distlock.operate import Listed, Party, break_lock
from tests.redis_server import RedisServer, redis_server
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

__all__ = ["redis_server", "zookeeper_server"]

PATIENCE = 30.0


@pytest.fixture(params=["memory", "file", "redis", "zookeeper"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{secrets.token_hex(4)}"
    if request.param == "file":
        return f"file://{tmp_path}/locks"
    if request.param == "zookeeper":
        ensemble: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        return f"{ensemble.url}/{secrets.token_hex(4)}"
    server: RedisServer = request.getfixturevalue("redis_server")
    server.client.flushall()
    return server.url


@pytest.fixture
def clients(url: str) -> Iterator[Callable[[], distlock.Locks]]:
    made = list[distlock.Locks]()

    def make() -> distlock.Locks:
        made.append(distlock.connect(url, prefix="shop", timeout=PATIENCE, max_hold=600))
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(condition: Callable[[], bool]) -> None:
    """Within the time that processes take to say what has lasted for a while."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)


def test_a_free_lock_has_no_holder(clients: Callable[[], distlock.Locks]) -> None:
    state = clients().inspect("product_1")
    assert (state.name, state.holder, state.fence, state.queue) == ("product_1", None, None, ())


def test_the_holder_is_shown_at_once_and_named_by_its_fence(clients: Callable[[], distlock.Locks]) -> None:
    with clients().lock("product_1") as grant:
        state = clients().inspect("product_1")
        assert state.holder is not None
        assert state.fence == grant.fence
        # A session of ZooKeeper is longer than the ttl, and no more is known of it. Files have no lease.
        assert 0 < state.remaining <= 13 or state.remaining == math.inf


def test_what_has_lasted_is_told_with_its_place_and_its_beginning(
    clients: Callable[[], distlock.Locks],
) -> None:
    mine, look = clients(), clients()
    began = time.time()
    with mine.lock("product_1"):
        until(lambda: bool(list(look.list())))
        (listed,) = look.list()
        party = look.inspect("product_1").holder
        assert listed == Listed("product_1", listed.party, held=True)
        assert party == listed.party
        assert (party.host, party.pid) == (socket.gethostname(), os.getpid())
        assert party.where.startswith("test_what_has_lasted_is_told_with_its_place")
        assert began - 1 < party.since < began + 1
        assert party.seconds() >= MOMENT - 0.5
    until(lambda: not list(look.list()))


def test_who_waits_is_told_with_how_many_and_in_order(clients: Callable[[], distlock.Locks]) -> None:
    holding, look = clients(), clients()
    waiting = [clients() for _ in range(2)]

    def wait(client: distlock.Locks) -> None:
        with client.lock("product_1"):
            pass

    with holding.lock("product_1"):
        threads = list[threading.Thread]()
        for place, client in enumerate(waiting):
            for _ in range(place + 1):
                threads.append(threading.Thread(target=wait, args=(client,)))
                threads[-1].start()
            until(lambda place=place: look.inspect("product_1").waiting == place + 1)  # type: ignore[misc]
        until(lambda: [party.waiting for party in look.inspect("product_1").queue] == [1, 2])
        state = look.inspect("product_1")
        assert {one.party.waiting for one in look.list() if not one.held} == {1, 2}
        assert all(party.where.startswith("test_who_waits_is_told") for party in state.queue)
    for thread in threads:
        thread.join(PATIENCE)


def told(client: distlock.Locks, name: str) -> str:
    def ask() -> str:
        with pytest.raises(distlock.LockTimeout) as caught, client.lock(name, timeout=0):
            pass
        return str(caught.value)

    # In this thread it would wait for the block around it.
    with ThreadPoolExecutor(1) as other:
        return other.submit(ask).result(PATIENCE)


def test_a_time_out_tells_the_holder_and_asks_nobody_for_it(
    clients: Callable[[], distlock.Locks], url: str
) -> None:
    holding, waiting = clients(), clients()

    def wait() -> None:
        with waiting.lock("product_1"):
            pass

    with holding.lock("product_1"):
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: " It has been held for " in told(waiting, "product_1"))
        said = told(waiting, "product_1")
        assert " seconds by test_a_time_out_tells_the_holder_and_asks_nobody_for_it (test_looking.py:" in said
        holder = f" in process {os.getpid()} on {socket.gethostname()}."
        line = f" If that is stuck, see how to break it: distlock show --url {url} --prefix shop product_1"
        # Another process can't see what is in the memory of this one.
        assert said.endswith(holder if url.startswith("memory:") else holder + line)
        # What this very process holds it knows by itself.
        assert " It has been held for " in told(holding, "product_1")
    thread.join(PATIENCE)
    until(lambda: waiting.namespace.known("product_1") == (None, None))


def test_only_the_names_that_begin_so_are_listed(clients: Callable[[], distlock.Locks]) -> None:
    mine, look = clients(), clients()
    with mine.lock("product_1", "cart_1"):
        until(lambda: len(list(look.list())) == 2)
        assert [one.name for one in look.list("cart_")] == ["cart_1"]


@pytest.mark.attack("A17")
def test_a_search_is_no_pattern(
    clients: Callable[[], distlock.Locks], url: str, request: pytest.FixtureRequest
) -> None:
    searches = [
        "*",
        "?",
        "[a-z]",
        "prod*",
        "product_[0-9]",
        "product_\\d",
        "product_%",
        ".*",
        "\\*",
        "(a+)+$",
    ]
    mine, look = clients(), clients()
    server = request.getfixturevalue("redis_server") if url.startswith("redis") else None
    if server is not None:
        server.client.config_resetstat()
    names = [f"{search}x" for search in searches]
    with mine.lock("product_1", *names):
        until(lambda: len(list(look.list())) == 1 + len(names))
        for search, name in zip(searches, names, strict=True):
            assert [one.name for one in look.list(search)] == [name]
    if server is not None:
        commands = server.client.info("commandstats")
        assert "cmdstat_hscan" in commands
        assert not {"cmdstat_keys", "cmdstat_scan"} & commands.keys()


def test_what_another_program_wrote_is_an_error_that_says_so(redis_server: RedisServer) -> None:
    locks = distlock.connect(redis_server.url, prefix="odd")
    with locks.semaphore("gate", limit=2):
        (holders,) = redis_server.client.scan_iter("dl:*gate}:holders")
        redis_server.client.zadd(holders, {b"many \xff": 1e15})
        with pytest.raises(distlock.BackendUnavailable, match="can't be read: ValueError"):
            locks.inspect("gate", "semaphore")
    locks.close()


def test_another_shop_is_not_listed(clients: Callable[[], distlock.Locks], url: str) -> None:
    other = distlock.connect(url, prefix="other")
    mine, look = clients(), clients()
    try:
        with mine.lock("product_1"), other.lock("product_1"):
            until(lambda: bool(list(look.list())) and bool(list(other.list())))
            assert len(list(look.list())) == 1
    finally:
        other.close()


# -- breaking --------------------------------------------------------------------------------------


@pytest.mark.attack("A33")
def test_what_was_seen_is_broken_and_the_holder_is_told(
    clients: Callable[[], distlock.Locks], caplog: pytest.LogCaptureFixture
) -> None:
    mine, operator = clients(), clients()
    grant = mine.lock("product_1").acquire()
    assert grant is not None
    assert break_lock(operator.namespace, operator.inspect("product_1"), by="ann")
    until(lambda: grant.lost)
    assert operator.lock("product_1").acquire(timeout=0) is not None
    said = [record.getMessage() for record in caplog.records if "broken by ann" in record.getMessage()]
    assert len(said) == 1
    assert "'product_1'" in said[0]


@pytest.mark.attack("A16")
def test_what_others_say_of_themselves_adds_no_line_to_the_log(
    clients: Callable[[], distlock.Locks], caplog: pytest.LogCaptureFixture
) -> None:
    operator = clients()
    with suppress(distlock.LockLost), clients().lock("product_1"):
        seen = operator.inspect("product_1")
        liar = Party("f" * 16, "web1\x1b[31m", 1, "shop.views.buy\nERROR all is lost", 1.0)
        assert break_lock(operator.namespace, replace(seen, holder=liar), by="ann\nb")
    (said,) = [one.getMessage() for one in caplog.records if "broken by" in one.getMessage()]
    assert said.isprintable()
    assert str(liar).isprintable(), "so it is in the message of a time-out"


def test_what_has_passed_on_meanwhile_is_not_broken(
    clients: Callable[[], distlock.Locks], caplog: pytest.LogCaptureFixture
) -> None:
    mine, operator = clients(), clients()
    with mine.lock("product_1"):
        seen = operator.inspect("product_1")
    with mine.lock("product_1") as grant:
        assert not break_lock(operator.namespace, seen, by="ann")
        grant.check()
    assert not break_lock(operator.namespace, operator.inspect("product_1"), by="ann"), "nobody holds it"
    assert "broken by" not in caplog.text


def test_a_broken_process_passes_nothing_on_inside(clients: Callable[[], distlock.Locks]) -> None:
    mine, operator = clients(), clients()
    first = mine.lock("product_1").acquire()
    assert first is not None
    second = list[distlock.Grant]()

    def wait() -> None:
        with mine.lock("product_1") as grant:
            second.append(grant)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: mine.namespace.engine.queues.waiting == 1)  # type: ignore[attr-defined]
    assert break_lock(operator.namespace, operator.inspect("product_1"), by="ann")
    until(lambda: first.lost)
    taken = operator.lock("product_1").acquire(timeout=0)
    first.release()
    if taken is not None:
        taken.release()
    waiting.join(PATIENCE)
    assert second[0].fence > first.fence
    assert second[0].fence.number != first.fence.number + 1, "it is not of the broken hold's block"
