"""After an error that somebody caught, PostgreSQL makes a silent ROLLBACK of COMMIT: nobody hears "sold"."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from rest_framework.decorators import api_view
from rest_framework.response import Response
from sqlalchemy import make_url

from distlock.errors import ConfigurationError
from django_distlock import atomic, distributed_lock, locks
from django_distlock.clients.client import RowClient
from tests.databases import Databases

ALIAS = "shop"
SAID = (
    r"has caught an error of the database 'shop'.*with transaction\.atomic\(\)"
    r".*set_rollback\(True, using='shop'\)"
)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def url(databases: Databases) -> str:
    return databases("postgresql", "swallowed")


@pytest.fixture
def database(url: str, django_db_blocker: Any, settings: Any) -> Iterator[None]:
    parts = make_url(url)
    own = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.database,
        "HOST": parts.host,
        "PORT": parts.port,
        "USER": parts.username,
        "ATOMIC_REQUESTS": True,
    }
    with django_db_blocker.unblock():
        connections.settings[ALIAS] = connections.configure_settings({"default": own})["default"]
        try:
            execute("DROP TABLE IF EXISTS orders")
            execute("CREATE TABLE orders (id integer PRIMARY KEY)")
            yield
        finally:
            locks.close_all()
            connections[ALIAS].close()
            del connections[ALIAS], connections.settings[ALIAS]


def execute(statement: str) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(statement)


def orders() -> int:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        return int(cursor.fetchone()[0])


def swallow() -> None:
    execute("INSERT INTO orders VALUES (1)")
    with suppress(IntegrityError):
        execute("INSERT INTO orders VALUES (1)")


def swallow_inside_a_savepoint() -> None:
    execute("INSERT INTO orders VALUES (1)")
    with suppress(IntegrityError), transaction.atomic(using=ALIAS):
        execute("INSERT INTO orders VALUES (1)")


def say_that_it_is_meant() -> None:
    swallow()
    transaction.set_rollback(True, using=ALIAS)


def function(do: Callable[[], None], status: int, **words: Any) -> Any:
    @distributed_lock("product_<int:id>", **words)
    def view(request: HttpRequest, id: int) -> HttpResponse:
        do()
        return HttpResponse("sold", status=status)

    return view


def rest(do: Callable[[], None], status: int, **words: Any) -> Any:
    @distributed_lock("product_<int:id>", **words)
    @api_view(["POST"])
    def view(request: Any, id: int) -> Any:
        do()
        return Response("sold", status=status)

    return view


def fenced(do: Callable[[], None], status: int) -> Any:
    return transaction.non_atomic_requests(using=ALIAS)(function(do, status, fence=ALIAS))


def both(do: Callable[[], None], status: int) -> Any:
    return function(do, status, fence=ALIAS)


VIEWS = {"a view": function, "REST framework": rest, "a fence": fenced, "both": both}
every_view = pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)


@pytest.fixture(params=["a lock service", "rows"])
def configured(request: pytest.FixtureRequest, settings: Any, database: None) -> None:
    service = {"LOCATION": f"memory://swallowed{next(_numbers)}"}
    rows = {"BACKEND": "database", "LOCATION": ALIAS, "PREFIX": str(next(_numbers))}
    settings.DISTLOCK = {"default": rows if request.param == "rows" else service}
    settings.MIDDLEWARE = []


@pytest.fixture
def table(database: None) -> None:
    call_command("migrate", "distlock", database=ALIAS, verbosity=0)


pytestmark = pytest.mark.usefixtures("table", "configured")


@every_view
def test_a_view_that_answers_success_is_an_error(serve: Callable[..., Client], make: Any) -> None:
    client = serve(make(swallow, 200))
    with pytest.raises(ConfigurationError, match=SAID):
        client.post("/product/1")
    client.raise_request_exception = False
    response = client.post("/product/1")
    assert (response.status_code, "Retry-After" in response.headers) == (500, False)
    assert orders() == 0


@every_view
@pytest.mark.parametrize(
    ("do", "status", "written"),
    [(swallow, 409, 0), (say_that_it_is_meant, 200, 0), (swallow_inside_a_savepoint, 200, 1)],
    ids=["an answer that tells of an error", "set_rollback", "a savepoint"],
)
def test_what_says_what_happens_stays_as_it_is(
    serve: Callable[..., Client], make: Any, do: Callable[[], None], status: int, written: int
) -> None:
    assert serve(make(do, status)).post("/product/1").status_code == status
    assert orders() == written


@every_view
def test_the_error_that_the_view_lets_out_is_its_own(serve: Callable[..., Client], make: Any) -> None:
    def sell() -> None:
        swallow()
        execute("SELECT 1")

    with pytest.raises(Exception, match="current transaction is aborted"):
        serve(make(sell, 200)).post("/product/1")


def test_a_plain_function_with_a_fence_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=SAID):
        distributed_lock("product_1", fence=ALIAS)(swallow)()
    assert orders() == 0


def test_the_transaction_of_a_grant_is_an_error() -> None:
    def sell() -> None:
        with locks.lock("product_1") as grant, nullcontext() if rows else atomic(grant, ALIAS):
            swallow()

    # There the block is the transaction.
    rows = isinstance(locks["default"], RowClient)
    with pytest.raises(ConfigurationError, match=SAID):
        sell()
    assert orders() == 0
