"""Requests that come to nothing leave nothing: names are what clients send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotFound
from django.test import Client, override_settings
from django.urls import path
from flask import Flask, abort
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Engine, text

import django_distlock
import flask_distlock
from distlock import current_grant
from tests.databases import on
from tests.fence.conftest import STOCK

REQUESTS = 30

DATABASE = {"BACKEND": "database", "PREFIX": "shop"}
FENCED = {"BACKEND": "dummy", "PREFIX": "shop", "FENCE": True}


def rows(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM distlock_fence")).scalar_one())


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock WHERE id = 1")).scalar_one())


@pytest.fixture(params=["dummy", "database"])
def setting(request: pytest.FixtureRequest, using: str) -> dict[str, Any]:
    return FENCED if request.param == "dummy" else DATABASE


@pytest.fixture
def in_django(setting: dict[str, Any], using: str) -> Iterator[Callable[..., int]]:
    """Serves a view that is called with a cursor and gives an answer; posts as often as one says."""
    urls = type("Urls", (), {"urlpatterns": []})
    where = {"LOCATION": using} if setting is DATABASE else {"FENCE": using}

    def post(body: Callable[[Any], HttpResponse], times: int = 1) -> int:
        @django_distlock.distributed_lock("product_<id>")
        def view(request: HttpRequest, id: int) -> HttpResponse:
            with connections[using].cursor() as cursor:
                return body(cursor)

        urls.urlpatterns[:] = [path("product/<int:id>", view)]
        answers = {Client().post(f"/product/{number}").status_code for number in range(times)}
        [status] = answers
        return status

    with override_settings(DISTLOCK={"default": setting | where}, ROOT_URLCONF=urls):
        yield post
        django_distlock.locks.close_all()


def raises(cursor: Any) -> HttpResponse:
    raise Http404


def returns(cursor: Any) -> HttpResponse:
    cursor.execute("SELECT qty FROM stock WHERE id = 1 FOR UPDATE".removesuffix(locking(cursor)))
    return HttpResponseNotFound()


def locking(cursor: Any) -> str:
    return " FOR UPDATE" if cursor.db.vendor == "sqlite" else ""


@pytest.mark.parametrize("body", [raises, returns])
def test_requests_for_what_is_not_there_leave_no_rows_in_django(
    body: Callable[[Any], HttpResponse], in_django: Callable[..., int], engine: Engine
) -> None:
    assert in_django(body, REQUESTS) == 404
    assert rows(engine) == 0


@pytest.mark.parametrize("answer", ["abort", "return"])
def test_requests_for_what_is_not_there_leave_no_rows_in_flask(
    answer: str, setting: dict[str, Any], engine: Engine
) -> None:
    app = Flask(__name__)
    url = engine.url.render_as_string(hide_password=False)
    app.config.from_mapping(SQLALCHEMY_DATABASE_URI=url, DISTLOCK={"default": setting})
    db, locks = SQLAlchemy(app), flask_distlock.DistLock(app)

    @app.post("/product/<int:id>")
    @locks.distributed_lock("product_<id>")
    def view(id: int) -> Any:
        db.session.execute(text("SELECT qty FROM stock WHERE id = 1"))
        return abort(404) if answer == "abort" else ("no such product", 404)

    client = app.test_client()
    assert {client.post(f"/product/{number}").status_code for number in range(REQUESTS)} == {404}
    assert rows(engine) == 0
    with app.app_context():
        locks.close()
        db.engine.dispose()


def writes(cursor: Any) -> None:
    cursor.execute("UPDATE stock SET qty = qty - 1 WHERE id = 1")


def writes_behind_a_select(cursor: Any) -> None:
    cursor.execute("SELECT sell()")


def writes_in_a_savepoint(cursor: Any) -> None:
    with transaction.atomic(using=cursor.db.alias):
        writes(cursor)


WRITES = [writes, writes_behind_a_select, writes_in_a_savepoint]


@pytest.fixture
def sell(engine: Engine) -> None:
    """A function that writes, where the database has such."""
    update = "UPDATE stock SET qty = qty - 1 WHERE id = 1"
    functions = {
        "postgresql": f"CREATE OR REPLACE FUNCTION sell() RETURNS int LANGUAGE sql AS '{update} RETURNING 1'",
        "mysql": f"CREATE OR REPLACE FUNCTION sell() RETURNS INT BEGIN {update}; RETURN 1; END",
    }
    with engine.begin() as connection:
        connection.execute(text(functions[engine.dialect.name]))


@on("postgresql", "mariadb")
@pytest.mark.parametrize("write", WRITES)
def test_what_has_written_leaves_its_mark_whatever_it_answers(
    write: Callable[[Any], None], in_django: Callable[..., int], engine: Engine, sell: None
) -> None:
    assert in_django(lambda cursor: (write(cursor), HttpResponseNotFound())[1]) == 404
    assert (rows(engine), stock(engine)) == (1, STOCK - 1)


@on("sqlite")
@pytest.mark.parametrize("write", [writes, writes_in_a_savepoint])
def test_what_has_written_leaves_its_mark_on_sqlite(
    write: Callable[[Any], None], in_django: Callable[..., int], engine: Engine
) -> None:
    assert in_django(lambda cursor: (write(cursor), HttpResponseNotFound())[1]) == 404
    assert (rows(engine), stock(engine)) == (1, STOCK - 1)


def test_what_a_hook_after_commit_may_rely_on_leaves_its_mark(
    in_django: Callable[..., int], engine: Engine
) -> None:
    def view(cursor: Any) -> HttpResponse:
        transaction.on_commit(lambda: None, using=cursor.db.alias)
        return HttpResponse()

    assert in_django(view) == 200
    assert rows(engine) == 1


def test_a_number_that_the_view_was_told_is_not_given_out_again(
    in_django: Callable[..., int], engine: Engine
) -> None:
    numbers: list[int] = []

    def view(cursor: Any) -> HttpResponse:
        numbers.append(current_grant().fence.number)
        return HttpResponse()

    assert [in_django(view), in_django(view)] == [200, 200]
    assert numbers[0] < numbers[1]


def test_a_row_that_was_there_stays(in_django: Callable[..., int], engine: Engine) -> None:
    assert in_django(lambda cursor: (writes(cursor), HttpResponse())[1]) == 200
    assert in_django(returns) == 404
    assert rows(engine) == 1


@on("postgresql")
def test_a_view_that_catches_the_databases_error_keeps_its_answer(
    in_django: Callable[..., int], engine: Engine
) -> None:
    from django.db import Error

    def view(cursor: Any) -> HttpResponse:
        try:
            cursor.execute("SELECT 1/0")
        except Error:
            return HttpResponseNotFound()
        raise AssertionError

    assert in_django(view) == 404
    assert rows(engine) == 0
