"""What PostgreSQL tells of rows that are locks: holder and queue; and the end of what was seen."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from distlock.backends.inspectable import KeyState
from distlock.fence import row_inspection
from distlock.fence.stamps import key_of
from distlock.fence.statements import statements_for
from tests.backends.database.conftest import STOCK, Instance, sell_out
from tests.databases import Databases, on
from tests.redis_server import eventually


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
    free = {"holder": "", "fence": None, "hold": "", "queue": [], "since": [], "listed": []}
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
    seen = look.do("look")
    first.close()
    second.do("hold")
    other = start()
    now = other.do("look")
    assert now["fence"] == seen["fence"], "what was rolled back has left no trace"
    assert now["hold"] != seen["hold"]
    assert look.do("break_it") is False
    # The button may be pressed at a process that has shown no question.
    other.tell("press")
    assert other.do(json.dumps(seen["hold"])) is False
    assert second.do("finish") == 200


@on("sqlite", "mariadb")
def test_a_database_that_does_not_tell_is_refused_with_where_to_look(
    start: Callable[..., Instance], database: str
) -> None:
    remedy = "lsof" if database.startswith("sqlite") else "innodb_trx"
    assert (answer := start().do("look")).startswith("Only PostgreSQL tells who holds a row.")
    assert remedy in answer


@pytest.mark.parametrize("start", ["flask"], indirect=True)
@on("postgresql")
def test_breaking_again_and_again_sells_nothing_twice(
    start: Callable[..., Instance], query: Callable[[str], Any]
) -> None:
    first, second, operator = start(), start(), start()
    assert (first.do("slowly"), second.do("slowly")) == ("slowly", "slowly")
    operator.do("hammer")
    answers = sell_out(first, second)
    # Those that were broken have sold nothing, and the others sell the rest.
    assert operator.do("rest") >= 5
    answers += sell_out(first, second)
    sold = sum(answer.get("200", 0) for answer in answers)
    sales = query("SELECT count(*) FROM sale")
    assert (sales, query("SELECT stock FROM product")) == (STOCK, 0)
    broken = sum(count for answer in answers for status, count in answer.items() if status in {"500", "503"})
    assert sales - broken <= sold <= sales, "whether a COMMIT whose connection broke was done nobody knows"


# -- by the statements themselves ------------------------------------------------------------------

Begin = Callable[..., "Transaction"]


class Transaction:
    """One connection, and what it does to the rows."""

    kind = "postgresql"
    listened = False
    database = "bare_rows"

    def __init__(self, url: str, autocommit: bool = False) -> None:
        self.connection = psycopg.connect(url, autocommit=autocommit)
        self.pid = self.connection.info.backend_pid

    def execute(self, statement: str, values: Any = ()) -> list[Any]:
        cursor = self.connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def lock(self, name: str, savepoint: bool = False) -> None:
        if savepoint:
            self.execute("SAVEPOINT a")
        self.execute("SELECT 1 FROM distlock_fence WHERE id = %s FOR UPDATE", [key_of("shop", name)])
        self.execute("UPDATE distlock_fence SET number = number + 1 WHERE id = %s", [key_of("shop", name)])
        if savepoint:
            self.execute("RELEASE SAVEPOINT a")

    def share(self, name: str) -> None:
        statements_for("postgresql").share(self, key_of("shop", name), 60)

    def take(self, name: str) -> None:
        statements_for("postgresql").lock(self, key_of("shop", name), 60)

    def sees(self, name: str) -> KeyState:
        return row_inspection.key_state(self, "shop", name)

    def holder(self, name: str) -> str:
        holder = self.sees(name).holder
        return "" if holder is None else holder.process


@pytest.fixture
def begin(databases: Databases) -> Iterator[Begin]:
    url = databases("postgresql", "bare_rows")
    opened = list[Transaction]()

    def begin(autocommit: bool = False, database: str = url) -> Transaction:
        opened.append(Transaction(database, autocommit))
        return opened[-1]

    tables = begin(autocommit=True)
    tables.execute("DROP TABLE IF EXISTS distlock_fence")
    tables.execute(
        "CREATE TABLE distlock_fence (id char(64) PRIMARY KEY, namespace text, name text, number bigint, "
        "epoch int DEFAULT 1, holder_id text DEFAULT '', passed_at bigint DEFAULT 1)"
    )
    for name in ("a", "b"):
        values = [key_of("shop", name), name]
        tables.execute("INSERT INTO distlock_fence VALUES (%s, 'shop', %s, 5)", values)
    yield begin
    for one in opened:
        one.connection.close()


def test_a_row_that_was_locked_in_a_savepoint_is_seen_as_held(begin: Begin) -> None:
    look, holder = begin(autocommit=True), begin()
    holder.lock("a", savepoint=True)
    sight = look.sees("a")
    assert (sight.number, sight.holder and sight.holder.process.split()[0]) == (6, str(holder.pid))
    [listed] = row_inspection.listed(look, "shop", "")
    assert (listed.row and listed.row.key, listed.process) == ("a", sight.holder and sight.holder.process)
    assert (look.holder("b"), look.sees("b").transaction) == ("", "")
    # The whole transaction is what was seen: another savepoint of it makes no difference.
    holder.lock("a", savepoint=True)
    assert look.sees("a").transaction == sight.transaction
    assert row_inspection.end(look, "shop", "a", sight.transaction)
    eventually(lambda: not look.holder("a"), "its connection has ended")
    assert not row_inspection.end(look, "shop", "a", sight.transaction)


def test_what_was_rolled_back_to_a_savepoint_is_free(begin: Begin) -> None:
    look, holder = begin(autocommit=True), begin()
    holder.lock("b")
    holder.execute("SAVEPOINT outer_one")
    holder.lock("a", savepoint=True)
    holder.execute("ROLLBACK TO SAVEPOINT outer_one")
    assert (look.holder("a"), look.holder("b").split()[0]) == ("", str(holder.pid))


def test_which_of_several_transactions_it_is_may_not_be_known_and_is_not_guessed(begin: Begin) -> None:
    look, other, holder, waiter = begin(autocommit=True), begin(), begin(), begin()
    # Older, and with a row of its own: as far as the database tells, this might be the one.
    other.lock("b")
    holder.lock("a", savepoint=True)
    assert look.sees("a").transaction == ""
    assert {str(one.pid) for one in (other, holder)} <= set(look.holder("a").split())
    [(others,)], [(holders,)] = (one.execute("SELECT txid_current()::text") for one in (other, holder))
    assert not row_inspection.end(look, "shop", "a", others)
    assert not row_inspection.end(look, "shop", "a", holders)
    waiting = threading.Thread(target=waiter.lock, args=("a",))
    waiting.start()
    eventually(lambda: look.sees("a").transaction != "", "the one that is waited for is known")
    assert not row_inspection.end(look, "shop", "a", others)
    assert look.holder("a").split()[0] == str(holder.pid)
    assert row_inspection.end(look, "shop", "a", look.sees("a").transaction)
    waiting.join(30)
    assert look.holder("a").split()[0] == str(waiter.pid)
    assert look.holder("b").split()[0] == str(other.pid)


def test_who_has_waited_for_a_transaction_that_is_over_does_not_hold_the_row(begin: Begin) -> None:
    look, holder, waiter = begin(autocommit=True), begin(), begin()
    # It would look for deadlocks while it stands still, and keep the table of locks from everybody.
    waiter.execute("SET deadlock_timeout = '1h'")
    # It is older than the holder, as one is that has asked for the mark of its transaction.
    waiter.execute("SELECT pg_current_xact_id()")
    holder.lock("a")
    waiting = threading.Thread(target=waiter.lock, args=("a",))
    waiting.start()
    asleep = f"SELECT 1 FROM pg_stat_activity WHERE pid = {waiter.pid} AND wait_event = 'transactionid'"
    eventually(lambda: bool(look.execute(asleep)), "it waits for the holder")
    os.kill(waiter.pid, signal.SIGSTOP)
    try:
        holder.connection.rollback()
        sight = look.sees("a")
    finally:
        os.kill(waiter.pid, signal.SIGCONT)
    assert (sight.holder, sight.transaction) == (None, "")
    waiting.join(30)
    assert look.holder("a").split()[0] == str(waiter.pid)


def test_a_row_that_passes_on_while_it_is_looked_at_is_looked_at_again(begin: Begin) -> None:
    look, before, holder = begin(autocommit=True), begin(), begin()
    before.lock("b")
    [earlier] = look.execute(row_inspection._HELD, [key_of("shop", "b")])
    holder.lock("a")
    execute, halves = look.execute, [earlier]

    def halfway(statement: str, values: Any = ()) -> list[Any]:
        """Give the holder before as well, once: half of the answer is of one moment, half of the next."""
        found = execute(statement, values)
        return [*found, halves.pop()] if statement == row_inspection._HELD and halves else found

    look.execute = halfway  # type: ignore[method-assign]
    sight = look.sees("a")
    assert not halves
    assert sight.holder is not None
    assert sight.holder.process.split()[0] == str(holder.pid)
    assert sight.transaction != ""


@pytest.mark.parametrize("several", [False, True])
def test_readers_are_seen_with_those_that_wait_behind_them_and_can_be_broken(
    begin: Begin, several: bool
) -> None:
    look, readers = begin(autocommit=True), [begin() for _ in range(1 + several)]
    for reader in readers:
        reader.share("a")
    waiters = [begin(), begin()]
    threads = [
        threading.Thread(target=waiters[0].take, args=("a",)),
        threading.Thread(target=waiters[1].share, args=("a",)),
    ]
    for count, thread in enumerate(threads, 1):
        thread.start()
        eventually(lambda count=count: look.sees("a").waiting == count, "it waits")
    sight = look.sees("a")
    assert (sight.mode, sight.number, sight.others) == ("read", 5, int(several))
    shown = [sight.holder, *sight.beside]
    assert [one and one.process.split()[0] for one in shown] == [str(one.pid) for one in readers]
    assert [one.process.split()[0] for one in sight.queue] == [str(one.pid) for one in waiters]
    listed = [(one.process.split()[0], one.row) for one in row_inspection.listed(look, "shop", "")]
    held = [pid for pid, row in listed if row is not None and row.held_since]
    assert {row.mode for _, row in listed if row is not None and row.held_since} == {"read"}
    waiting = [pid for pid, row in listed if row is not None and row.waiting]
    assert (sorted(held), sorted(waiting)) == (
        sorted(str(one.pid) for one in readers),
        sorted(str(one.pid) for one in waiters),
    )
    assert row_inspection.end(look, "shop", "a", sight.transaction)
    threads[0].join(60)
    sight = look.sees("a")
    assert (sight.mode, sight.holder and sight.holder.process.split()[0]) == (
        "exclusive",
        str(waiters[0].pid),
    )
    waiters[0].connection.rollback()
    threads[1].join(60)
    assert look.holder("a").split()[0] == str(waiters[1].pid)


def test_a_copy_of_the_database_has_locks_of_its_own(begin: Begin, databases: Databases) -> None:
    """In a copy, as each process of a test suite has one, table and rows have the same numbers."""
    administrator = begin(autocommit=True, database=databases("postgresql", "row_locks"))
    administrator.execute("DROP DATABASE IF EXISTS bare_copy WITH (FORCE)")
    administrator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'bare_rows'"
    )
    administrator.execute("CREATE DATABASE bare_copy TEMPLATE bare_rows")
    copy = administrator.connection.info.dsn.replace("row_locks", "bare_copy")
    look, stranger, waiter = begin(autocommit=True), begin(database=copy), begin(database=copy)
    stranger.lock("a", savepoint=True)
    waiting = threading.Thread(target=waiter.lock, args=("a",))
    waiting.start()
    theirs = begin(autocommit=True, database=copy)
    eventually(lambda: theirs.sees("a").waiting == 1, "it waits")
    holder = begin()
    holder.lock("a", savepoint=True)
    sight = look.sees("a")
    assert (sight.holder and sight.holder.process.split()[0], sight.waiting) == (str(holder.pid), 0)
    assert [one.process.split()[0] for one in row_inspection.listed(look, "shop", "")] == [str(holder.pid)]
    assert row_inspection.end(look, "shop", "a", sight.transaction)
    assert theirs.holder("a").split()[0] == str(stranger.pid)
    stranger.connection.rollback()
    waiting.join(30)


def test_a_user_without_rights_over_the_site_s_sees_its_locks_and_can_not_break_them(begin: Begin) -> None:
    tables, holder, waiter = begin(autocommit=True), begin(), begin()
    # It is one of the whole server.
    if not tables.execute("SELECT 1 FROM pg_roles WHERE rolname = 'ann'"):
        tables.execute("CREATE ROLE ann")
    tables.execute("GRANT SELECT ON distlock_fence TO ann")
    holder.lock("a")
    waiting = threading.Thread(target=waiter.lock, args=("a",))
    waiting.start()
    look = begin(autocommit=True)
    look.execute("SET ROLE ann")
    eventually(lambda: look.sees("a").waiting == 1, "the one that waits is seen")
    sight = look.sees("a")
    assert sight.holder is not None
    assert sight.holder.process.split()[0] == str(holder.pid)
    listed = {one.process.split()[0]: one.row for one in row_inspection.listed(look, "shop", "")}
    assert listed.keys() == {str(holder.pid), str(waiter.pid)}
    assert all(row is not None and row.held_since + row.waiting_since for row in listed.values())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        row_inspection.end(look, "shop", "a", sight.transaction)
    holder.connection.rollback()
    waiting.join(30)
