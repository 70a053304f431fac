"""Exactly one order for each key, over HTTP, on a Django and a Flask instance that share a database."""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import product as each_of
from pathlib import Path
from string import Template

import psycopg
import pytest

from demo_shop.configuration import Configuration
from demo_shop.ledger import open_sale
from demo_shop.sale import Refusal, lock_names, read_asked
from loadtest import stack as nginx
from loadtest.servers.databases import DATABASES, PostgreSQLServer, own_postgresql
from loadtest.stack import Stack
from tests.databases import Databases
from tests.demo_shop.test_shop import Answer
from tests.redis_server import eventually

#: The guard, and where its lock is: with none it is the key's row alone that makes one order.
GUARDS = {
    "file": ("distributed", "file"),
    "database": ("distributed", "database"),
    "no lock": ("none", "file"),
}


def ask(port: int, path: str, key: str | None, body: str = "", **headers: object) -> Answer:
    if key is not None:
        headers["Idempotency-Key"] = key
    if body:
        headers["Content-Type"] = "application/json"
    sent = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())


def buy(port: int, key: str | None, product: int = 1, **headers: object) -> Answer:
    return ask(port, f"/products/{product}/reduce", key, **headers)


def new_key() -> str:
    return str(uuid.uuid4())


#: The row of the key depends on the database, and the lock that is elsewhere does not.
@pytest.fixture(
    scope="module",
    params=[*each_of(DATABASES, ["no lock"]), ("postgresql", "database"), ("sqlite", "file")],
    ids=" and ".join,
)
def stack(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Stack]:
    database, kind = request.param
    guard, backend = GUARDS[kind]
    shop = Configuration(guard=guard, stock=3, products=3)
    with Stack(("django", "flask"), shop, backend, databases(database, "once")) as running:
        yield running


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["django then flask", "flask then django"])
def ports(request: pytest.FixtureRequest, stack: Stack) -> tuple[int, int]:
    """The instance that is asked first, and the one that is asked again."""
    stack.restock()
    first, again = request.param
    return stack.instance_ports[first], stack.instance_ports[again]


def test_who_asks_again_gets_the_first_answer(stack: Stack, ports: tuple[int, int]) -> None:
    key = new_key()
    first, again = buy(ports[0], key), buy(ports[1], key)
    assert (first.status, first.text) == (again.status, again.text)
    assert first.status == 200
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Content-Type"] == "application/json"
    assert [order.number for order in stack.ledger().orders] == [first.json()["order"]]


def test_a_refusal_is_an_answer_too(stack: Stack, ports: tuple[int, int]) -> None:
    cart = json.dumps({"lines": [{"sku": 1, "quantity": 2}, {"sku": 2, "quantity": 9}]})
    key = new_key()
    first = ask(ports[0], "/checkout", key, cart)
    assert (first.status, first.json()["code"]) == (409, "sold_out")
    again = ask(ports[1], "/checkout", key, cart)
    assert (again.status, again.text) == (first.status, first.text)
    assert stack.ledger().left == {1: 3, 2: 3, 3: 3}


@pytest.mark.attack("A30")
def test_another_request_with_the_key_is_refused(stack: Stack, ports: tuple[int, int]) -> None:
    key = new_key()
    assert buy(ports[0], key, product=1).status == 200
    other = buy(ports[1], key, product=2)
    assert (other.status, other.json()["code"]) == (422, "key_reused")
    assert len(stack.ledger().orders) == 1


@pytest.mark.attack("A29")
def test_eight_at_once_make_one_order(stack: Stack, ports: tuple[int, int]) -> None:
    key = new_key()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: buy(ports[number % 2], key), range(8)))
    assert {(answer.status, answer.text) for answer in answers} == {(200, answers[0].text)}
    assert len(stack.ledger().orders) == 1


def test_a_lost_reply_costs_nothing(stack: Stack, ports: tuple[int, int]) -> None:
    key = new_key()
    with closing(http.client.HTTPConnection("127.0.0.1", ports[0], timeout=30)) as connection:
        connection.request("POST", "/products/1/reduce", headers={"Idempotency-Key": key})
        # Nobody has read the answer, which may not even have been made yet.
        assert buy(ports[1], key).status == 200
        # Only now: a request that is still on its way would come into the next test's sale.
        assert connection.getresponse().status == 200
    assert len(stack.ledger().orders) == 1


@pytest.mark.attack("A29", control=True)
def test_without_a_key_each_request_is_an_order(stack: Stack, ports: tuple[int, int]) -> None:
    assert [buy(port, None).status for port in ports] == [200, 200]
    assert len(stack.ledger().orders) == 2


def test_a_key_that_is_none_is_refused(ports: tuple[int, int]) -> None:
    for key in ('""', "x" * 256):
        answer = buy(ports[0], key)
        assert (answer.status, answer.json()["code"]) == (400, "bad_key")


STALLING = {
    "django": "tests.demo_shop.stalling_django:application",
    "flask": "tests.demo_shop.stalling_flask:app",
}


@pytest.fixture(
    scope="module",
    params=[("sqlite", "django", "flask"), ("postgresql", "flask", "django"), ("mariadb", "django", "flask")],
    ids=" and ".join,
)
def doomed(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Stack]:
    """Two instances to kill, and one that survives them."""
    kind, killed, survivor = request.param
    database = databases(kind, "once")
    shop = Configuration(guard="distributed", pause=1)
    with Stack((killed, killed, survivor), shop, "file", database, applications=STALLING) as stack:
        yield stack


@pytest.mark.fault("F01", "F38")
@pytest.mark.parametrize(
    ("victim", "moment", "replayed"),
    [(0, "X-Tell-Inside", None), (1, "X-Stay-Committed", "true")],
    ids=["before COMMIT", "between COMMIT and answer"],
)
def test_a_server_that_is_killed_leaves_one_order_or_none(
    doomed: Stack, victim: int, moment: str, replayed: str | None, tmp_path: Path
) -> None:
    doomed.restock()
    key, mark = new_key(), tmp_path / "moment"
    with ThreadPoolExecutor(1) as pool:
        first: Future[Answer] = pool.submit(buy, doomed.instance_ports[victim], key, **{moment: mark})
        while not mark.exists():
            assert not first.done()
        doomed.instances[victim].kill()
        assert isinstance(first.exception(), OSError | http.client.HTTPException)
        assert len(doomed.ledger().orders) == (1 if replayed else 0)
        again = buy(doomed.instance_ports[-1], key)
        assert (again.status, again.headers.get("Idempotent-Replayed")) == (200, replayed)
        assert [order.number for order in doomed.ledger().orders] == [again.json()["order"]]


@pytest.mark.fault("F38")
@pytest.mark.fault("F38", control=True)
@pytest.mark.parametrize("repeats", [False, True], ids=["as configured", "with retries"])
def test_nginx_sends_a_purchase_to_no_other_instance(
    repeats: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if repeats:
        retrying = "proxy_next_upstream error non_idempotent;"
        told = nginx.NGINX.template.replace("proxy_next_upstream off;", retrying)
        monkeypatch.setattr(nginx, "NGINX", Template(told))
    committed = tmp_path / "committed"
    shop = Configuration(guard="distributed", stock=3)
    with (
        Stack(("django", "flask"), shop, "file", applications=STALLING) as stack,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(buy, stack.front.port, None, **{"X-Stay-Committed": committed})
        for number in range(1, 3 if repeats else 2):
            eventually(committed.exists, "an order is committed")
            committed.unlink()
            orders = stack.ledger().orders
            assert len(orders) == number
            # The instance dies before it answers.
            stack.instances[stack.names.index(orders[-1].instance)].kill()
        assert answer.result(60).status == 502
        assert len(stack.ledger().orders) == (2 if repeats else 1)


@dataclass
class Interrupted:
    """A shop whose PostgreSQL can be made to stay in COMMIT, and to crash there."""

    stack: Stack
    server: PostgreSQLServer
    crashed: threading.Event = field(default_factory=threading.Event)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return list(cursor.fetchall()) if cursor.description else []

    def stay_in_commit(self, moment: str) -> None:
        if moment == "not written":
            # A trigger runs before the record of the COMMIT is written.
            open_sale(self.server.url, stock=3, commit_pause=60)
        else:
            # The record is written, and no standby confirms it.
            self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.ask("SELECT pg_reload_conf()")
            # The processes of a busy server learn the setting when they get round to it.
            self.crashed.clear()
            threading.Thread(target=self._probe, daemon=True).start()
            eventually(lambda: self._stays("LIKE"), "a transaction stays in COMMIT")

    def _probe(self) -> None:
        """Commit until the server crashes."""
        with suppress(psycopg.OperationalError):
            while not self.crashed.is_set():
                self.ask("SELECT pg_logical_emit_message(true, 'probe', '')")

    def _stays(self, like: str) -> bool:
        """Return whether a transaction whose statement is *like* that of a probe stays in COMMIT."""
        waits = "wait_event IN ('PgSleep', 'SyncRep') AND backend_type = 'client backend'"
        return bool(self.ask(f"SELECT 1 FROM pg_stat_activity WHERE {waits} AND query {like} '%probe%'"))

    def crash_in_commit(self, key: str | None) -> Answer:
        """Buy, crash in COMMIT, and start again. Return what the buyer was told."""
        with ThreadPoolExecutor(1) as pool:
            first: Future[Answer] = pool.submit(buy, self.stack.instance_ports[0], key)
            eventually(lambda: self._stays("NOT LIKE"), "the order is in COMMIT")
            self.crashed.set()
            # Not for the running server, but for the next one.
            self.ask("ALTER SYSTEM RESET synchronous_standby_names")
            self.server.crash()
            told = first.result(60)
        self.server.start()
        return told

    def insist(self, key: str | None) -> Answer:
        """Buy, and again as long as an instance meets one of its connections that have ended."""
        for _ in range(10):
            if (answer := buy(self.stack.instance_ports[1], key)).status == 200:
                return answer
        raise AssertionError(answer)


@pytest.fixture(scope="module", params=[("django", "flask"), ("flask", "django")], ids=" and ".join)
def interrupted(request: pytest.FixtureRequest) -> Iterator[Interrupted]:
    with (
        own_postgresql() as server,
        Stack(request.param, Configuration(guard="distributed", stock=3), "file", server.url) as stack,
    ):
        yield Interrupted(stack, server)


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("moment", "replayed"), [("not written", None), ("written", "true")])
def test_postgresql_that_stops_in_commit_leaves_one_order_or_none(
    interrupted: Interrupted, moment: str, replayed: str | None
) -> None:
    stack, key = interrupted.stack, new_key()
    stack.restock()
    interrupted.stay_in_commit(moment)
    assert interrupted.crash_in_commit(key).status in {500, 503}
    assert len(stack.ledger().orders) == (1 if replayed else 0)
    interrupted.ask("DROP TRIGGER IF EXISTS slow_commit ON purchase")
    again = interrupted.insist(key)
    assert again.headers.get("Idempotent-Replayed") == replayed
    assert [order.number for order in stack.ledger().orders] == [again.json()["order"]]
    assert stack.ledger().stock == 2


@pytest.mark.fault("F31", control=True)
def test_without_a_key_an_order_that_was_committed_unheard_is_made_again(interrupted: Interrupted) -> None:
    interrupted.stack.restock()
    interrupted.stay_in_commit("written")
    interrupted.crash_in_commit(None)
    interrupted.insist(None)
    assert len(interrupted.stack.ledger().orders) == 2


def test_a_key_in_quotes_is_the_same_key() -> None:
    assert read_asked('"abc"', "POST") == read_asked("abc", "POST")
    assert read_asked(None) is None
    assert lock_names(None) == []


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "schlüssel", "a\tb"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(Refusal, match="1 to 255 characters"):
        lock_names(key)


def test_where_parts_meet_makes_a_difference() -> None:
    assert read_asked("k", "a", "bc") != read_asked("k", "ab", "c")
