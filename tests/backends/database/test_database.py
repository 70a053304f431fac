"""A shop that has nothing but its database: its rows are locks between real processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy.exc import OperationalError

from loadtest.servers.processes import free_port
from tests.backends.database.conftest import STOCK, Instance, sell_out
from tests.bouncer import pgbouncer
from tests.databases import on
from tests.packets import drop_packets


def test_two_processes_sell_exactly_what_is_there(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    first, second = sell_out(start(), start())
    assert first.keys() | second.keys() == {"200", "409"}
    assert first.get("200", 0) + second.get("200", 0) == STOCK
    assert (query("SELECT count(*) FROM sale"), query("SELECT stock FROM product")) == (STOCK, 0)
    # Each grant whose transaction was committed had a number of its own.
    assert query("SELECT number FROM distlock_fence") >= STOCK


def test_without_the_guard_the_same_run_oversells(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    sell_out(start("none"), start("none"))
    assert query("SELECT count(*) FROM sale") > STOCK - query("SELECT stock FROM product")


@pytest.mark.fault("F37")
@pytest.mark.fault("F37", control=True)
@pytest.mark.parametrize("guard", ["row", "none"])
@on("postgresql")
def test_rows_are_locks_behind_a_pgbouncer_that_pools_transactions(
    database: str, query: Callable[[str], Any], guard: str
) -> None:
    with pgbouncer(database) as pooled:
        instances = [Instance("django", pooled, guard, 60) for _ in range(2)]
        try:
            instances[0].do("tables")
            first, second = sell_out(*instances)
        finally:
            for instance in instances:
                instance.close()
    sold = first.get("200", 0) + second.get("200", 0)
    assert query("SELECT count(*) FROM sale") == sold
    if guard == "row":
        assert (sold, query("SELECT stock FROM product")) == (STOCK, 0)
    else:
        assert sold > STOCK - query("SELECT stock FROM product")


def test_a_plain_with_block_keeps_the_views_out(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    seller, restocker = start(), start()
    seller.tell("sell")
    restocker.do("restock")
    sold = seller.answer()["200"]
    assert query("SELECT stock FROM product") == STOCK + 20 - sold


#: Which connections wait for a lock, and how to end one.
WAITING = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "SELECT pg_terminate_backend({})",
    ),
    "mysql": (
        "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
        "KILL {}",
    ),
}
#: Which connection has the row, and does nothing.
HELD = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'",
    "mysql": "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_query IS NULL",
}


def scheme_of(database: str) -> str:
    return database.partition(":")[0].partition("+")[0]


@on("postgresql", "mariadb")
def test_a_waiter_whose_connection_is_ended_is_refused_and_the_next_one_served(
    start: Callable[..., Instance], query: Callable[[str], Any], database: str
) -> None:
    holder, waiter = start(), start()
    holder.do("hold")
    waiter.tell("buy")
    waiting, end = WAITING[scheme_of(database)]
    patience = time.monotonic() + 60
    while (connection := query(waiting)) is None:
        assert time.monotonic() < patience
        time.sleep(0.11)  # MariaDB looks no more often, and not at all while it is asked more often.
    query(end.format(connection))
    assert waiter.answer() == 503
    assert holder.do("finish") == 200
    assert waiter.do("buy") == 200


@pytest.mark.fault("F01")
def test_a_killed_holder_costs_the_others_nothing(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    holder, waiter = start(), start()
    holder.do("hold")
    waiter.tell("buy")
    holder.kill()
    began = time.monotonic()
    assert waiter.answer() == 200
    assert time.monotonic() - began < 10
    assert query("SELECT count(*) FROM sale") == 1


@pytest.mark.fault("F33")
def test_a_stopped_holder_keeps_the_others_waiting_until_their_timeout(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    holder, waiter = start(), start(timeout=1)
    holder.do("hold")
    holder.stop()
    began = time.monotonic()
    assert waiter.do("buy") == 423
    assert 1 <= time.monotonic() - began < 10
    holder.go_on()
    assert holder.do("finish") == 200
    assert waiter.do("buy") == 200
    assert query("SELECT count(*) FROM sale") == 2


@pytest.mark.parametrize("framework", ["django", "flask"])
@pytest.mark.parametrize("scheme", ["sqlite", "postgresql", "mysql"])
def test_without_its_database_no_view_runs_and_503_says_so(framework: str, scheme: str) -> None:
    nowhere = "sqlite:////no such directory/shop.sqlite3"
    url = nowhere if scheme == "sqlite" else f"{scheme}://shop@127.0.0.1:{free_port()}/shop"
    instance = Instance(framework, url, "row", 1)
    try:
        assert instance.do("buy") == 503
    finally:
        instance.close()


#: SQLite has no such limit.
LIMITS = {
    "postgresql": "ALTER DATABASE row_locks SET idle_in_transaction_session_timeout = '{0}s'",
    "mysql": "SET GLOBAL idle_transaction_timeout = {0}",
}


@pytest.mark.fault("F33")
@on("postgresql", "mariadb")
def test_a_database_that_is_told_so_ends_a_hung_holder(
    start: Callable[..., Instance], database: str, query: Callable[[str], Any]
) -> None:
    limit = LIMITS[database.partition(":")[0]]
    query(limit.format(1))
    try:
        holder, waiter = start(), start()
        holder.do("hold")
        assert waiter.do("buy") == 200
        assert holder.do("finish") == 500
        assert query("SELECT count(*) FROM sale") == 1
    finally:
        query(limit.format(0))


@pytest.fixture
def vanish(database: str, query: Callable[[str], Any]) -> Iterator[Callable[[Instance], None]]:
    """Drop the packets between an instance and the database, which is told of the end only by the test."""
    yield lambda instance: drop_packets(instance.pid, urlsplit(database).port or 0)
    end_holder(database, query)


def end_holder(database: str, query: Callable[[str], Any]) -> None:
    if (held := query(HELD[scheme_of(database)])) is not None:
        with suppress(OperationalError):  # It may end meanwhile.
            query(WAITING[scheme_of(database)][1].format(held))


#: How a database finds out within seconds that a client has vanished.
KEEPALIVES = [f"ALTER DATABASE row_locks SET tcp_keepalives_{what}" for what in ("idle", "interval", "count")]
NOTICING = {
    "idle transaction": ("django", "postgresql", [LIMITS["postgresql"]]),
    "keepalives": ("flask", "postgresql", [f"{setting} = {{0}}" for setting in KEEPALIVES]),
    "idle transaction of MariaDB": ("flask", "mariadb", [LIMITS["mysql"]]),
}


@pytest.mark.fault("F32")
@pytest.mark.parametrize(
    ("start", "database", "limits"), NOTICING.values(), ids=NOTICING, indirect=["start", "database"]
)
def test_a_holder_whose_packets_are_dropped_is_ended_by_a_database_that_is_told_so(
    start: Callable[..., Instance],
    query: Callable[[str], Any],
    limits: list[str],
    vanish: Callable[[Instance], None],
) -> None:
    for limit in limits:
        query(limit.format(1))
    try:
        holder, waiter = start(), start()
        holder.do("hold")
        vanish(holder)
        assert waiter.do("buy") == 200
    finally:
        for limit in limits:
            query(limit.format(0))
    assert query("SELECT count(*) FROM sale") == 1


@pytest.mark.fault("F32", control=True)
@pytest.mark.parametrize(
    ("start", "database"), [("django", "postgresql"), ("flask", "mariadb")], indirect=True
)
def test_else_it_keeps_the_row_of_a_holder_whose_packets_are_dropped(
    start: Callable[..., Instance],
    query: Callable[[str], Any],
    database: str,
    vanish: Callable[[Instance], None],
) -> None:
    holder, waiter = start(), start(timeout=3)
    holder.do("hold")
    vanish(holder)
    # Its process has ended, and nobody tells the database.
    holder.kill()
    assert waiter.do("buy") == 423
    end_holder(database, query)
    assert waiter.do("buy") == 200
    assert query("SELECT count(*) FROM sale") == 1


@pytest.mark.fault("F32")
@on("postgresql")  # PyMySQL has no such limit.
def test_a_holder_whose_packets_are_dropped_is_told_by_the_limit_of_its_driver(
    start: Callable[..., Instance], query: Callable[[str], Any], vanish: Callable[[Instance], None]
) -> None:
    holder = start(options="?tcp_user_timeout=1000")
    holder.do("hold")
    vanish(holder)
    assert holder.do("finish") == 500
    assert query("SELECT count(*) FROM sale") == 0


@pytest.mark.fault("F34")
@on("postgresql")  # It says who waits.
def test_one_connection_of_a_process_waits_for_the_row(
    start: Callable[..., Instance], database: str, query: Callable[[str], Any]
) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    holder, waiters = start(), start()
    holder.do("hold")
    waiters.tell("sell")
    deadline = time.monotonic() + 30
    while not query(waiting):
        assert time.monotonic() < deadline
    # Eight threads ask. Any that would join the first has had the time of these questions to do so.
    assert [query(waiting) for _ in range(100)] == [1] * 100
    assert holder.do("finish") == 200
    assert waiters.answer() == {"200": 64}
