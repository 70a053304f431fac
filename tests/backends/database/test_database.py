"""Two real processes of a shop that has nothing but its database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from demo_shop.ledger import database_url
from loadtest.ports import free_port
from tests.databases import Databases, on
from tests.forked import Forked

STOCK = 100


class Instance(Forked):
    def __init__(self, framework: str, *arguments: object) -> None:
        super().__init__(framework, "tests.backends.database.instance", framework, *map(str, arguments))
        assert self.answer() == "ready"

    def answer(self) -> Any:
        return json.loads(self.stdout.readline())

    def do(self, word: str) -> Any:
        self.tell(word)
        return self.answer()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases(request.param, "row_locks")


@pytest.fixture
def query(database: str) -> Iterator[Callable[[str], Any]]:
    engine = create_engine(database_url(database))
    serial = {"postgresql": "SERIAL PRIMARY KEY", "mysql": "INTEGER PRIMARY KEY AUTO_INCREMENT"}

    def ask(statement: str) -> Any:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    for table in ("product", "sale", "distlock_fence", "django_migrations"):
        ask(f"DROP TABLE IF EXISTS {table}")
    ask("CREATE TABLE product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)")
    key = serial.get(engine.dialect.name, "INTEGER PRIMARY KEY")
    ask(f"CREATE TABLE sale (id {key}, product INTEGER NOT NULL)")
    ask(f"INSERT INTO product VALUES (1, {STOCK})")
    yield ask
    engine.dispose()


@pytest.fixture(params=["django", "flask"])
def start(
    request: pytest.FixtureRequest, database: str, query: Callable[[str], Any]
) -> Iterator[Callable[..., Instance]]:
    instances: list[Instance] = []

    def begin(guard: str = "row", timeout: float = 60) -> Instance:
        instances.append(Instance(request.param, database, guard, timeout))
        if len(instances) == 1:
            instances[0].do("tables")
        return instances[-1]

    yield begin
    for instance in instances:
        instance.close()


def sell_out(*instances: Instance) -> list[dict[str, int]]:
    for instance in instances:
        instance.tell("sell")
    return [instance.answer() for instance in instances]


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


@on("postgresql", "mariadb")
def test_a_waiter_whose_connection_is_ended_is_refused_and_the_next_one_served(
    start: Callable[..., Instance], query: Callable[[str], Any], database: str
) -> None:
    holder, waiter = start(), start()
    holder.do("hold")
    waiter.tell("buy")
    waiting, end = WAITING[database.partition(":")[0].partition("+")[0]]
    patience = time.monotonic() + 60
    while (connection := query(waiting)) is None:
        assert time.monotonic() < patience
        time.sleep(0.11)  # MariaDB looks no more often, and not at all while it is asked more often.
    query(end.format(connection))
    assert waiter.answer() == 503
    assert holder.do("finish") == 200
    assert waiter.do("buy") == 200


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


def test_a_stopped_holder_keeps_the_others_waiting_until_their_timeout(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    holder, waiter = start(), start(timeout=1)
    holder.do("hold")
    holder.stop()
    began = time.monotonic()
    assert waiter.do("buy") == 423
    assert 1 <= time.monotonic() - began < 4
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


def seen(look: Instance, waiting: int) -> dict[str, Any]:
    """What *look* sees of the lock, when so many wait."""
    patience = time.monotonic() + 60
    while len((state := look.do("look"))["queue"]) != waiting:
        assert time.monotonic() < patience
    return dict(state)


@on("postgresql")
def test_the_holder_and_the_queue_are_seen_and_what_was_seen_can_be_broken(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    holder, waiter, look = start(), start(), start()
    assert holder.do("buy") == 200
    free = {"holder": "", "fence": None, "queue": [], "since": [], "listed": []}
    assert look.do("look") == free
    began = time.time()
    holder.do("hold")
    held = look.do("look")
    pid = query("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'")
    assert held["holder"].startswith(f"process {pid} of PostgreSQL, for a client at 127.0.0.1:")
    assert held["fence"] == [1, query("SELECT number FROM distlock_fence") + 1]
    assert (held["queue"], held["listed"]) == ([], [["product_1", True]])
    assert began - 1 < held["since"][0] < time.time() + 1
    waiter.tell("buy")
    crowded = seen(look, waiting=1)
    assert crowded["holder"] == held["holder"]
    assert crowded["queue"][0].startswith("process ")
    assert crowded["listed"] == [["product_1", False], ["product_1", True]]
    assert look.do("break_it") is True
    assert waiter.answer() == 200
    assert holder.do("finish") in {500, 503}
    assert query("SELECT count(*) FROM sale") == 2
    assert look.do("break_it") is False
    assert look.do("look") == free


@on("postgresql")
def test_a_transaction_that_comes_after_what_was_seen_is_not_broken_whatever_its_number_is(
    start: Callable[..., Instance],
) -> None:
    first, second, look = start(), start(), start()
    assert second.do("buy") == 200
    first.do("hold")
    fence = look.do("look")["fence"]
    first.close()
    second.do("hold")
    unseen = start()
    assert unseen.do("look")["fence"] == fence, "what was rolled back has left no trace"
    assert look.do("break_it") is False
    assert second.do("finish") == 200


@on("sqlite", "mariadb")
def test_a_database_that_does_not_tell_is_refused_with_where_to_look(
    start: Callable[..., Instance], database: str
) -> None:
    remedy = "lsof" if database.startswith("sqlite") else "innodb_trx"
    assert (answer := start().do("look")).startswith("Only PostgreSQL tells who holds a row.")
    assert remedy in answer
