"""Readers and writers of one row, where that is the lock: who waits for whom.

Readers of one row are let in by the database. Where it lets a reader pass a writer that waits, readers that
never cease keep writers out for ever.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from distlock.errors import ConfigurationError, LockTimeout
from distlock.fence import statements
from distlock.fence.stamps import Overtaken, floor_of
from distlock.fence.transaction import OvertakenReader, time_left
from distlock.grants.grant import Grant
from distlock.locks.client import Locks
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import make_rows
from flask_distlock.sql.fenced_sessions import check_absent_rows_in, fence_again, fenced
from tests.databases import on
from tests.fence.conftest import write_row
from tests.fence.test_passing import grant, passes
from tests.fence.test_readers import passages

BOTH = on("postgresql", "mariadb")


def process() -> Locks:
    """The locks of a process of its own, as far as the others can see: they meet in the database."""
    return make_rows(read({"default": {"BACKEND": "database", "PREFIX": "shop"}})["default"])


@contextmanager
def holding(engine: Engine, word: str, seconds: float = 60.0, *names: str) -> Iterator[tuple[Session, Grant]]:
    """A transaction of a process of its own that has the row of ``product_1``, and what has it."""
    lock = getattr(process(), word)(*(names or ("product_1",)))
    with lock as held, Session(engine) as session, fenced(session, engine, held, lambda: seconds):
        yield session, held
        check_absent_rows_in(session, engine, held, lambda: seconds)
        session.commit()


class Caller:
    """Somebody in a thread that wants to read or to write, and stays inside until it is told to leave."""

    def __init__(self, pool: ThreadPoolExecutor, engine: Engine, word: str) -> None:
        self.inside, self._leave = threading.Event(), threading.Event()
        self._over: Future[None] = pool.submit(self._run, engine, word)

    def _run(self, engine: Engine, word: str) -> None:
        with holding(engine, word):
            self.inside.set()
            assert self._leave.wait(60)

    def leaves(self) -> None:
        assert self.inside.wait(60)
        self._leave.set()
        self._over.result(60)


WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


def until(engine: Engine, waiting: int) -> None:
    """Until so many wait for a row."""
    deadline = time.monotonic() + 60
    while True:
        with engine.connect() as connection:
            found = connection.execute(text(WAITING[engine.dialect.name])).scalar_one()
        if found == waiting:
            return
        assert time.monotonic() < deadline, f"{found} wait, and not {waiting}"
        # MariaDB looks no more often than that, and else tells what it saw last.
        time.sleep(0.11)


@BOTH
def test_readers_share_the_row_and_write_nothing_and_have_the_number_of_the_writer_before(
    engine: Engine,
) -> None:
    with holding(engine, "lock") as (_, writer):
        assert writer.fence == (1, 1)
    before = passages(engine)
    with holding(engine, "read_lock") as (_, one), holding(engine, "read_lock") as (_, two):
        assert one.fence == two.fence == (1, 1)
        assert (one.mode, writer.mode) == ("read", "exclusive")
        one.check()
    assert passages(engine) == before
    with holding(engine, "lock") as (_, writer):
        assert writer.fence == (1, 2)


@BOTH
def test_a_writer_waits_for_the_readers_before_it_and_those_after_it_wait_for_the_writer(
    engine: Engine,
) -> None:
    passes(engine, grant(1))
    with ThreadPoolExecutor(4) as pool:
        first, second = (Caller(pool, engine, "read_lock") for _ in range(2))
        assert first.inside.wait(60)
        assert second.inside.wait(60)
        writer = Caller(pool, engine, "lock")
        until(engine, waiting=1)
        later = Caller(pool, engine, "read_lock")
        until(engine, waiting=2)
        first.leaves()
        assert not writer.inside.is_set()
        second.leaves()
        assert writer.inside.wait(60)
        assert not later.inside.is_set()
        writer.leaves()
        later.leaves()


@on("postgresql")
def test_without_its_line_readers_of_postgresql_pass_a_writer_for_as_long_as_others_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_SHARED", "%s <> ''")
    monkeypatch.setattr(statements, "_SHARE", "SELECT %s <> ''")
    monkeypatch.setattr(statements, "_TAKE", "SELECT %s <> ''")
    passes(engine, grant(1))
    with ThreadPoolExecutor(3) as pool:
        reader = Caller(pool, engine, "read_lock")
        assert reader.inside.wait(60)
        writer = Caller(pool, engine, "lock")
        until(engine, waiting=1)
        # The reader for which the writer waits leaves, and so does each one after it.
        for _ in range(5):
            later = Caller(pool, engine, "read_lock")
            assert later.inside.wait(60)
            reader.leaves()
            reader = later
        until(engine, waiting=1)
        assert not writer.inside.is_set()
        reader.leaves()
        writer.leaves()


@BOTH
@pytest.mark.parametrize(("inside", "waits"), [("read_lock", "lock"), ("lock", "read_lock")])
def test_every_wait_ends(engine: Engine, inside: str, waits: str) -> None:
    passes(engine, grant(1))
    refused = pytest.raises(LockTimeout, match="still held by somebody else's transaction")
    with holding(engine, inside), refused, holding(engine, waits, 0.05):
        raise AssertionError("it has begun")


def test_line_and_row_are_waited_for_no_longer_than_one_of_them_might_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time_now = 100.0
    monkeypatch.setattr(statements, "now", lambda: time_now)
    limits: list[object] = []

    class Connection:
        kind, database, listened = "postgresql", "shop", False

        def execute(self, statement: str, parameters: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
            nonlocal time_now
            limits.extend(parameters if "set_config" in statement else ())
            if "pg_advisory" in statement:
                time_now += 3.5
            return [("0", "")]

    statements._queue_for(Connection(), statements._TAKE, "SELECT 1", "ff", 5.0)
    assert limits == ["5000ms", "1500ms", "0"]


# -- without a row -------------------------------------------------------------------------------


@BOTH
def test_a_reader_makes_no_row_and_has_the_number_of_what_was_pruned(engine: Engine) -> None:
    with holding(engine, "read_lock") as (_, held):
        assert held.fence == (1, 0)
    key, namespace, _ = floor_of("shop")
    row = f"INSERT INTO distlock_fence VALUES ('{key}', '{namespace}', '', 1, 7, '', 1)"
    with engine.begin() as connection:
        connection.execute(text(row))
    with holding(engine, "read_lock") as (_, held):
        assert held.fence == (1, 7)
    assert len(passages(engine)) == 1
    with holding(engine, "lock") as (_, held):
        assert held.fence == (1, 8)


@BOTH
def test_a_reader_without_a_row_is_overtaken_by_the_first_writer(engine: Engine) -> None:
    with pytest.raises(OvertakenReader), holding(engine, "read_lock"):
        write_row(engine, 1)


@BOTH
def test_a_reader_whose_transaction_was_rolled_back_meets_the_writers_that_came_between(
    engine: Engine,
) -> None:
    passes(engine, grant(1))
    with process().read_lock("product_1") as held, Session(engine) as session:
        with fenced(session, engine, held, lambda: 60.0):
            session.rollback()
        passes(engine, grant(2))
        with pytest.raises(Overtaken):
            fence_again(session, session.connection(), held, lambda: 60.0)


@BOTH
def test_several_names_are_shared_together(engine: Engine) -> None:
    names = ("product_1", "product_2")
    passes(engine, grant(1, "mine", *names))
    with (
        holding(engine, "read_lock", 60.0, *names),
        holding(engine, "read_lock", 60.0, "product_2"),
        pytest.raises(LockTimeout),
        holding(engine, "lock", 0.05, "product_2", "product_3"),
    ):
        raise AssertionError("it has begun")


# -- where it can't be had -----------------------------------------------------------------------


@on("sqlite")
def test_rows_of_sqlite_are_not_shared(engine: Engine) -> None:
    refused = pytest.raises(ConfigurationError, match="Rows of SQLite can't be locks that readers share")
    with refused, holding(engine, "read_lock"):
        raise AssertionError("it has begun")


def test_who_asks_once_for_the_lock_asks_once_for_its_row() -> None:
    held = grant(33)
    held.timeout = 0.0
    assert time_left(held)() <= 0
    held.timeout = -1
    assert time_left(held)() == math.inf
