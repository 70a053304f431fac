"""A batch in Django: one transaction, to which each request adds its own part, or fails alone."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connections, transaction
from django.http import HttpResponse
from django.utils import translation

from distlock import current_grant
from tests.batches.django_line import Answer, DjangoLine, counted_commits
from tests.databases import on
from tests.fence.conftest import STOCK

SOLD = Answer(200)
FAILED = Answer(500)
ROLLED_BACK = Answer(503, "lock_batch_failed")


def test_those_that_stand_in_line_share_one_commit_and_one_fence(line: DjangoLine) -> None:
    fences: list[object] = []
    line.serve(dict.fromkeys("abc", lambda: fences.append(current_grant().fence)))
    with counted_commits() as commits:
        answers = line.answers("a", "b", "c")
    assert answers == dict.fromkeys("abc", SOLD)
    assert line.done == ["a", "b", "c"]
    assert (len(commits), len(set(fences)), line.left()) == (1, 1, STOCK - 3)


@on("postgresql")
def test_without_batch_each_has_its_own(line: DjangoLine) -> None:
    line.serve({}, batch=None)
    with counted_commits() as commits:
        line.answers("a", "b", "c")
    assert len(commits) == 3


@on("postgresql")
def test_a_batch_has_no_more_parts_than_it_was_told(line: DjangoLine) -> None:
    line.serve({}, batch=2)
    with counted_commits() as commits:
        line.answers("a", "b", "c", "d", "e")
    assert (len(commits), line.left()) == (3, STOCK - 5)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_view_that_raises_is_rolled_back_alone(line: DjangoLine, name: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    line.serve({name: fail})
    with counted_commits() as commits:
        answers = line.answers("a", "b", "c")
    assert answers == dict.fromkeys("abc", SOLD) | {name: FAILED}
    assert (len(commits), line.left()) == (1, STOCK - 2)


@on("postgresql")
def test_a_view_that_caught_an_error_of_the_database_is_rolled_back_alone(line: DjangoLine) -> None:
    def catch() -> None:
        try:
            line.shop.execute("SELECT nonsense")
        except Exception:
            line.done.append("caught")

    line.serve({"b": catch})
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_a_refusal_of_the_view_stands_alone(line: DjangoLine) -> None:
    def refuse() -> HttpResponse:
        transaction.set_rollback(True, using=line.using)
        return HttpResponse(status=409)

    line.serve({"a": refuse, "c": refuse})
    refused = Answer(409)
    assert line.answers("a", "b", "c", "d") == {"a": refused, "b": SOLD, "c": refused, "d": SOLD}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_a_deferred_constraint_fails_its_own_request(line: DjangoLine) -> None:
    line.execute(
        "DROP TABLE IF EXISTS bought, customer",
        "CREATE TABLE customer (id int PRIMARY KEY)",
        "CREATE TABLE bought (customer int REFERENCES customer DEFERRABLE INITIALLY DEFERRED)",
    )
    line.serve({"b": lambda: line.shop.execute("INSERT INTO bought VALUES (7)")})
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@on("postgresql")
def test_a_constraint_may_be_broken_within_a_view(line: DjangoLine) -> None:
    line.execute(
        "DROP TABLE IF EXISTS bought, customer",
        "CREATE TABLE customer (id int PRIMARY KEY)",
        "CREATE TABLE bought (customer int REFERENCES customer DEFERRABLE INITIALLY DEFERRED)",
    )

    def buy(customer: int) -> None:
        line.shop.execute(f"INSERT INTO bought VALUES ({customer})")
        line.shop.execute(f"INSERT INTO customer VALUES ({customer})")

    line.serve({"a": lambda: buy(1), "b": lambda: buy(2)})
    assert line.answers("a", "b") == {"a": SOLD, "b": SOLD}


@on("postgresql")
def test_what_may_be_deferred_is_checked_at_the_end_of_a_view_unless_it_says_otherwise(
    line: DjangoLine,
) -> None:
    line.execute(
        "DROP TABLE IF EXISTS slot",
        "CREATE TABLE slot (n int CONSTRAINT one_each UNIQUE DEFERRABLE INITIALLY IMMEDIATE)",
        "INSERT INTO slot VALUES (1)",
    )

    def take() -> HttpResponse:
        try:
            with transaction.atomic(using=line.using):
                line.shop.execute("INSERT INTO slot VALUES (1)")
        except IntegrityError:
            return HttpResponse("taken", status=409)
        return HttpResponse("yours")

    def take_at_once() -> HttpResponse:
        line.shop.execute("SET CONSTRAINTS one_each IMMEDIATE")
        return take()

    line.serve({"a": take, "b": take, "c": take_at_once})
    assert line.answers("a", "b", "c") == {"a": Answer(409), "b": FAILED, "c": Answer(409)}


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_view_that_closes_the_connection_fails_all(line: DjangoLine, name: str) -> None:
    line.serve({name: lambda: connections[line.using].close()})
    answers = line.answers("a", "b", "c")
    assert answers.pop(name) == FAILED
    # What comes after it stands in line anew.
    after = {"a": {"b", "c"}, "b": {"c"}}[name]
    assert answers == {other: SOLD if other in after else ROLLED_BACK for other in answers}
    assert line.left() == STOCK - len(after)


@on("postgresql", "mariadb")
def test_after_a_commit_of_the_view_the_outcome_is_unknown(line: DjangoLine) -> None:
    line.serve({"b": lambda: line.shop.execute("COMMIT")})
    unknown = Answer(500, "lock_outcome_unknown")
    assert line.answers("a", "b", "c") == {"a": unknown, "b": unknown, "c": SOLD}


@pytest.mark.fault("F31")
@on("postgresql")
def test_a_broken_connection_fails_all(line: DjangoLine) -> None:
    def cut() -> None:
        with line.engine.connect() as other:
            pid = connections[line.using].connection.info.backend_pid
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
        line.shop.read()

    line.serve({"b": cut})
    assert line.answers("a", "b", "c") == {"a": ROLLED_BACK, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 1


@on("sqlite")
def test_a_commit_that_fails_fails_all(line: DjangoLine) -> None:
    line.execute(
        "CREATE TABLE customer (id int PRIMARY KEY)",
        "CREATE TABLE bought (customer int REFERENCES customer DEFERRABLE INITIALLY DEFERRED)",
    )
    # SQLite looks at it when it commits, and no sooner.
    line.serve({"b": lambda: line.shop.execute("INSERT INTO bought VALUES (7)")})
    assert line.answers("a", "b", "c") == dict.fromkeys("abc", ROLLED_BACK)
    assert line.left() == STOCK


@on("postgresql")
def test_views_run_in_their_own_threads_and_language(line: DjangoLine) -> None:
    threads: dict[str, int] = {}

    def note(name: str) -> None:
        threads[name] = threading.get_ident()
        line.done.append(translation.get_language())
        translation.activate({"a": "de", "b": "fr"}[name])

    line.serve({"a": lambda: note("a"), "b": lambda: note("b")})
    line.answers("a", "b")
    assert len(set(threads.values())) == 2
    assert line.done == ["a", "en-us", "b", "en-us"]


@on("postgresql")
def test_a_turn_ends_a_batch(line: DjangoLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.engine.wait_queue.TURN", 0.0)
    line.serve({})
    with counted_commits() as commits:
        line.answers("a", "b", "c")
    assert len(commits) == 3
