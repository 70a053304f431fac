"""Which requests of a line are in one batch: those that follow each other and have the same guard."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from sqlalchemy import text

from distlock import current_grant
from django_distlock import distributed_lock, signals
from tests.batches.django_line import Answer, DjangoLine, counted_commits
from tests.databases import on
from tests.fence.conftest import STOCK

pytestmark = on("postgresql")

SOLD = Answer(200)
SOME = ("a", "b", "c")


def test_nobody_is_passed_over(line: DjangoLine) -> None:
    """A request of another guard stands between two of a batch: it has its turn between them."""
    line.serve({})

    @distributed_lock("product_<id>", fence=line.using, batch=8)
    def restock(request: HttpRequest, id: int) -> HttpResponse:
        line.shop.write(line.shop.read() + 10)
        line.done.append("restock")
        return HttpResponse("put")

    line.shop.urls.urlpatterns.append(path("restock/<int:id>", restock))

    def put() -> None:
        Client().post("/restock/1")
        connections.close_all()

    between = threading.Thread(target=put)
    last = threading.Thread(target=line.ask, args=("c",))
    with counted_commits() as commits:
        with line.standing("a", "b"):
            for there, thread in enumerate((between, last), 3):
                thread.start()
                line.wait_for(there)
        between.join()
        last.join()
    assert line.done == ["a", "b", "restock", "c"]
    assert (len(commits), line.left()) == (3, STOCK + 7)


def test_a_batch_is_a_turn(line: DjangoLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock goes back to its service behind it: another process may want it."""
    backend = line.client().namespace.engine.backend  # type: ignore[attr-defined]
    release, released = backend.release, list[object]()

    def count(*arguments: object) -> object:
        released.append(arguments[0])
        return release(*arguments)

    monkeypatch.setattr(backend, "release", count)
    line.serve({}, batch=2)
    # The lock for which they stand in line is passed on to the first of them.
    line.answers(*SOME)
    assert len(released) == 2


def test_who_has_waited_too_long_is_in_no_batch(line: DjangoLine) -> None:
    line.serve({}, timeout=0.2)
    with line.standing("a", "b") as answers:
        line.wait_for(0)
    assert answers == dict.fromkeys("ab", Answer(423, "lock_contended"))
    assert line.left() == STOCK


def test_each_is_told_of_as_any_other(line: DjangoLine) -> None:
    told: list[str] = []
    for signal in (signals.lock_acquired, signals.lock_released):
        name = "acquired" if signal is signals.lock_acquired else "released"
        signal.connect(lambda name=name, **_: told.append(name), weak=False, dispatch_uid="batch")  # type: ignore[misc]
    line.serve({})
    line.answers(*SOME)
    for signal in (signals.lock_acquired, signals.lock_released):
        signal.disconnect(dispatch_uid="batch")
    assert sorted(told) == ["acquired"] * 3 + ["released"] * 3


def test_a_fence_that_one_of_them_has_asked_for_is_remembered(line: DjangoLine) -> None:
    @distributed_lock("other_<id>", fence=line.using, batch=8)
    def look(request: HttpRequest, id: int) -> HttpResponse:
        if request.META["QUERY_STRING"] == "b":
            current_grant()
        return HttpResponse("seen")

    line.shop.urls.urlpatterns.insert(0, path("product/<int:id>", look))
    line.name = "other_1"
    line.answers(*SOME)
    with line.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM distlock_fence")).scalar_one() == 1


def test_a_row_that_none_of_them_has_used_is_not_left(line: DjangoLine) -> None:
    @distributed_lock("other_<id>", fence=line.using, batch=8)
    def look(request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("seen")

    line.shop.urls.urlpatterns.insert(0, path("product/<int:id>", look))
    line.name = "other_1"
    line.answers(*SOME)
    with line.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM distlock_fence")).scalar_one() == 0


def test_a_statement_that_takes_too_long_fails_its_own_request(line: DjangoLine) -> None:
    def wait() -> None:
        line.shop.execute("SET LOCAL statement_timeout = '10ms'")
        line.shop.execute("SELECT pg_sleep(60)")

    line.serve({"b": wait})
    assert line.answers(*SOME) == {"a": SOLD, "b": Answer(500), "c": SOLD}
    assert line.left() == STOCK - 2


def test_a_connection_that_breaks_between_two_requests_fails_all(line: DjangoLine) -> None:
    pids: list[int] = []
    acquired = itertools.count(1)

    def note_connection() -> None:
        pids.append(connections[line.using].connection.info.backend_pid)

    def cut(**about: object) -> None:
        if next(acquired) == 3:
            with line.engine.connect() as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({pids[0]}, 60000)")

    line.serve({"a": note_connection})
    signals.lock_acquired.connect(cut)
    try:
        answers = line.answers(*SOME)
    finally:
        signals.lock_acquired.disconnect(cut)
    failed = Answer(503, "lock_batch_failed")
    assert answers == {"a": failed, "b": failed, "c": Answer(500)}
    assert line.left() == STOCK


def test_one_that_wakes_when_the_lock_is_lost_does_nothing(line: DjangoLine) -> None:
    acquired = itertools.count(1)

    def lose(**about: object) -> None:
        if next(acquired) == 2:
            line.shop.lost()

    line.serve({})
    signals.lock_acquired.connect(lose)
    try:
        answers = line.answers("a", "b")
    finally:
        signals.lock_acquired.disconnect(lose)
    assert answers == dict.fromkeys("ab", Answer(503, "lock_lost"))
    assert line.done == ["a"]
    assert line.left() == STOCK


def test_the_end_of_a_part_makes_the_savepoint_of_the_next_in_one_message(
    line: DjangoLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute = CursorWrapper._execute

    def note(self: Any, sql: str, *arguments: Any) -> Any:
        sent.append(sql.split(None, 1)[0])
        return execute(self, sql, *arguments)

    def fail() -> None:
        raise ZeroDivisionError

    line.serve({"c": fail})
    # From here on the fence has its row.
    assert line.ask("first") == SOLD
    monkeypatch.setattr(CursorWrapper, "_execute", note)
    line.answers("a", "b", "c", "d")
    fence = sale = ["SELECT", "UPDATE"]
    assert sent == [
        *(*fence, "SAVEPOINT", *sale, "SET"),
        *(*sale, "SET"),
        *(*sale, "ROLLBACK", "RELEASE"),
        *("SAVEPOINT", *sale, "SET"),
    ]
    assert line.left() == STOCK - 4
