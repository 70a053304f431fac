"""The end of a batch: hooks, commits by statements of MariaDB, and what fails one request or all."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from sqlalchemy import Engine, event, text

from distlock.errors import ConfigurationError
from distlock.web.batch import END_OF_PART, Batch, refuse_committing
from django_distlock import locks
from tests.backends.redis.proxy import Proxy
from tests.batches.django_line import Answer, DjangoLine, Line
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import DjangoShop, open_shop
from tests.redis_server import eventually

SOLD = Answer(200)
FAILED = Answer(500)
LOST = Answer(503, "lock_lost")
UNKNOWN = Answer(500, "lock_outcome_unknown")


def fail() -> None:
    raise ZeroDivisionError


def test_hooks_run_after_the_commit_in_their_threads_and_under_the_lock(line: DjangoLine) -> None:
    seen: dict[str, object] = {}

    def put_hook(name: str) -> None:
        view = threading.get_ident()

        def hook() -> None:
            seen[name] = (
                threading.get_ident() == view,
                line.left(),
                locks["default"].namespace.locked("product_1"),
            )

        transaction.on_commit(hook, using=line.using)

    line.serve({name: lambda name=name: put_hook(name) for name in "ac"})  # type: ignore[misc]
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    assert seen == dict.fromkeys("ac", (True, STOCK - 3, True))


@pytest.mark.parametrize("name", ["a", "b"])
@on("postgresql")
def test_a_hook_that_fails_fails_its_own_request(line: DjangoLine, name: str) -> None:
    def put_hook() -> None:
        transaction.on_commit(fail, using=line.using)

    line.serve({name: put_hook})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD) | {name: FAILED}
    assert line.left() == STOCK - 3


@on("postgresql")
def test_hooks_of_what_is_rolled_back_do_not_run(line: DjangoLine) -> None:
    def put_hook() -> None:
        transaction.on_commit(lambda: line.done.append("hook"), using=line.using)
        fail()

    line.serve({"a": put_hook, "b": put_hook})
    line.answers("a", "b", "c")
    assert line.done == ["a", "b", "c"]


def test_a_hook_writes_in_a_transaction_that_passes_the_fence(line: DjangoLine) -> None:
    def write() -> None:
        with transaction.atomic(using=line.using):
            line.shop.write(line.shop.read() - 1)

    def put_hook() -> None:
        transaction.on_commit(write, using=line.using)

    line.serve({"a": put_hook, "b": put_hook})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    assert line.left() == STOCK - 5


@on("postgresql")
def test_a_hook_whose_lock_is_lost_writes_nothing(line: DjangoLine) -> None:
    def write() -> None:
        line.shop.lost()
        with transaction.atomic(using=line.using):
            line.shop.write(0)

    line.serve({"b": lambda: transaction.on_commit(write, using=line.using)})
    assert line.answers("a", "b") == {"a": SOLD, "b": FAILED}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_a_lock_that_is_lost_fails_all(line: DjangoLine) -> None:
    line.serve({"b": line.shop.lost})
    assert line.answers("a", "b", "c") | {"c": LOST} == dict.fromkeys("abc", LOST)
    assert line.left() >= STOCK - 1


@on("postgresql")
def test_a_lock_that_is_lost_at_the_end_of_the_first_part_is_not_committed_under(
    line: DjangoLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can be taken along any more, so nobody else looks after the lock before COMMIT."""
    execute, ends = CursorWrapper._execute, iter(["the first"])

    def lose(self: Any, sql: str, *arguments: Any) -> Any:
        if sql == END_OF_PART and next(ends, None):
            line.shop.lost()
        return execute(self, sql, *arguments)

    monkeypatch.setattr(CursorWrapper, "_execute", lose)
    line.serve({})
    assert line.answers("a", "b", "c")["a"] == LOST
    assert line.left() == STOCK


@pytest.mark.fault("F31")
@on("postgresql")
def test_where_the_reply_to_commit_is_lost_the_outcome_is_unknown(
    line: DjangoLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(connections.settings[line.using]["PORT"])
    commit = BaseDatabaseWrapper.commit

    def losing(self: Any) -> None:
        proxy.lose_reply()
        commit(self)

    monkeypatch.setitem(connections.settings[line.using], "PORT", proxy.port)
    monkeypatch.setattr(BaseDatabaseWrapper, "commit", losing)
    line.serve({})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", UNKNOWN)
    # Here it was committed.
    assert line.left() == STOCK - 3
    proxy.close()


@on("postgresql")
def test_a_part_that_hangs_keeps_the_others_no_longer_than_the_lock(any_line: Line) -> None:
    line = any_line
    goes_on = threading.Event()
    hangs = threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait(60)

    # Long enough for a busy machine to begin all three parts before the lock is lost.
    line.serve({"c": hang}, max_hold=1.0, ttl=3.0)
    answered: dict[str, Answer] = {}

    def ask(name: str) -> None:
        answered[name] = line.ask(name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    with line.standing():
        for there, thread in enumerate(threads, 1):
            thread.start()
            line.wait_for(there)
    eventually(lambda: len(answered) == 2, "the others are answered")
    assert hangs.is_set()
    assert answered == {"a": LOST, "b": LOST}
    goes_on.set()
    for thread in threads:
        thread.join()
    assert answered["c"] == LOST
    assert line.left() == STOCK
    # What it had is in nobody's way.
    assert line.ask("d") == SOLD


@on("postgresql")
def test_nobody_is_answered_before_the_commit(any_line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    commits, may_commit = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        commits.set()
        assert may_commit.wait(60)

    commit = BaseDatabaseWrapper.commit
    monkeypatch.setattr(BaseDatabaseWrapper, "commit", lambda self: (wait(), commit(self)))
    any_line.serve({})
    answered: list[str] = []
    threads = [threading.Thread(target=lambda one=one: answered.append(any_line.ask(one))) for one in "abc"]  # type: ignore[misc]
    with any_line.standing():
        for there, thread in enumerate(threads, 1):
            thread.start()
            any_line.wait_for(there)
        event.listen(Engine, "commit", wait)
    assert commits.wait(60)
    assert any_line.done == ["a", "b", "c"]
    assert answered == []
    may_commit.set()
    for thread in threads:
        thread.join()
    event.remove(Engine, "commit", wait)
    assert answered == [SOLD] * 3


@pytest.fixture
def serializable(engine: Engine, using: str, unhurried: None) -> Iterator[DjangoLine]:
    with open_shop("django", engine, using, {}, isolation="SERIALIZABLE") as shop:
        assert isinstance(shop, DjangoShop)
        yield DjangoLine(shop, engine)


@pytest.mark.fault("F35")
@on("postgresql")
def test_a_serialization_failure_at_commit_fails_all(serializable: DjangoLine) -> None:
    """Two transactions have read what the other one writes. The other is committed first."""
    line = serializable
    line.execute("DROP TABLE IF EXISTS note", "CREATE TABLE note (stock int)")

    def cross() -> None:
        line.shop.execute("SELECT * FROM note")
        with line.engine.connect().execution_options(isolation_level="SERIALIZABLE") as other:
            [(stock,)] = other.execute(text("SELECT qty FROM stock"))
            other.execute(text(f"INSERT INTO note VALUES ({stock})"))
            other.commit()

    line.serve({"c": cross})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", Answer(503, "lock_batch_failed"))
    assert line.left() == STOCK


@on("postgresql")
def test_the_lock_is_given_back_before_the_others_are_told(
    any_line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, committed = list[bool](), Batch.committed

    def note(self: Batch[Any]) -> None:
        told.append(self.grant.released)
        committed(self)

    monkeypatch.setattr(Batch, "committed", note)
    any_line.serve({})
    assert any_line.answers("a", "b", "c") == dict.fromkeys("abc", SOLD)
    # A batch of one is told, too.
    assert set(told) == {True}


# -- statements that commit by themselves -----------------------------------------------------------


SOLD = Answer(200)
FAILED = Answer(500)
UNKNOWN = Answer(500, "lock_outcome_unknown")

#: MariaDB executes each of them, and commits before it does.
COMMITTING = (
    "/*c*/ TRUNCATE seen",
    "/* a\n*/ -- b\n# c\nTRUNCATE seen",
    "/*!50000 TRUNCATE*/ seen",
    "/*! /* c */ FLUSH STATUS */",
    "/*M!100000 FLUSH STATUS */",
    "/*!999999 x */ FLUSH STATUS",
    "FLUSH STATUS",
    "FLUSH/**/LOCAL STATUS",
    "TRUNCATE TABLE seen",
    "CREATE TABLE IF NOT EXISTS seen (n int)",
    "CREATE OR REPLACE VIEW seen_view AS SELECT 1",
    "CREATE TEMPORARY SEQUENCE numbers",
    "DROP TABLE IF EXISTS nothing",
    "ALTER TABLE seen COMMENT 'x'",
    "RENAME TABLE seen TO saw, saw TO seen",
    "ANALYZE TABLE seen",
    "ANALYZE LOCAL TABLE seen",
    "CHECK TABLE seen",
    "OPTIMIZE TABLE seen",
    "REPAIR TABLE seen",
    "LOCK TABLES seen READ",
    "RESET QUERY CACHE",
    "BACKUP UNLOCK",
    "SET PASSWORD = PASSWORD('')",
    "SET DEFAULT ROLE NONE",
    "SET @x = 'autocommit', `autocommit` = 1",
    "SET @@session.autocommit = ON",
    "SET SESSION autocommit=1",
    "SET STATEMENT max_statement_time=9 FOR FLUSH STATUS",
    "GRANT SELECT ON seen TO CURRENT_USER()",
    "DROP USER IF EXISTS nobody",
    "BEGIN",
    "START TRANSACTION",
)

#: These leave the transaction as it is.
HARMLESS = (
    "SELECT 'a; TRUNCATE seen'",
    "/* TRUNCATE seen */ SELECT 1",
    "-- FLUSH STATUS\nSELECT 1",
    "SET @sql = 'x; FLUSH STATUS'",
    'SET @sql = "its; FLUSH STATUS"',
    "CREATE TEMPORARY TABLE own (n int)",
    "CREATE /*c*/ OR REPLACE TEMPORARY TABLE own (n int)",
    "DROP TEMPORARY TABLE IF EXISTS own",
    "ANALYZE SELECT 1",
    "CHECKSUM TABLE seen",
    "SET NAMES utf8mb4",
    "SET autocommit=0",
    "SET @autocommits = 1",
    "BEGIN NOT ATOMIC SET @x = 1; END",
    "PREPARE one FROM 'SELECT 1'",
)


def commits(engine: Engine, statement: str) -> bool:
    """Whether MariaDB ends the transaction in which it executes *statement*."""
    with engine.connect() as connection:
        try:
            connection.exec_driver_sql("SAVEPOINT here")
            connection.exec_driver_sql(statement.replace("%", "%%"))
            connection.exec_driver_sql("RELEASE SAVEPOINT here")
        except Exception as error:
            if "SAVEPOINT here does not exist" not in str(error):
                raise
            return True
        finally:
            connection.invalidate()
        return False


@pytest.fixture
def seen(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS seen (n int)")


@on("mariadb")
def test_what_commits_is_refused_and_nothing_else(engine: Engine, seen: None) -> None:
    for statement in COMMITTING:
        assert commits(engine, statement), statement
        lower = statement.lower().replace("/*m!", "/*M!")
        for one in (statement, lower, statement.encode(), f"SELECT 1; {statement}"):
            with pytest.raises(ConfigurationError, match="Leave batch= out"):
                refuse_committing(one)
    for statement in HARMLESS:
        assert not commits(engine, statement), statement
        refuse_committing(statement)


@pytest.mark.parametrize("statement", COMMITTING[:10])
@on("mariadb")
def test_a_statement_that_commits_fails_its_own_request(any_line: Line, statement: str) -> None:
    line = any_line
    line.execute("CREATE TABLE IF NOT EXISTS seen (n int)")
    line.serve({"b": lambda: line.shop.execute(statement)})  # type: ignore[attr-defined]
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@on("mariadb")
def test_where_a_procedure_commits_the_outcome_is_unknown(any_line: Line) -> None:
    line = any_line
    name = f"ends_{secrets.token_hex(4)}"
    line.execute(f"CREATE PROCEDURE {name}() COMMIT")
    line.serve({"b": lambda: line.shop.execute(f"CALL {name}()")})  # type: ignore[attr-defined]
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}


@on("postgresql", "mariadb")
def test_where_the_driver_commits_the_outcome_is_unknown(any_line: Line) -> None:
    line = any_line

    def commit() -> None:
        if isinstance(line, DjangoLine):
            connections[line.using].connection.commit()
        else:
            line.shop.db.session.connection().connection.commit()  # type: ignore[attr-defined]

    line.serve({"b": commit})
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}


@on("postgresql", "mariadb")
def test_a_view_that_commits_and_then_raises_has_an_unknown_outcome(any_line: Line) -> None:
    line = any_line

    def commit_and_fail() -> None:
        line.shop.execute("COMMIT")  # type: ignore[attr-defined]
        raise ZeroDivisionError

    line.serve({"b": commit_and_fail})
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}
