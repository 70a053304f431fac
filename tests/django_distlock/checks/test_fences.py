from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_distlock import distributed_lock
from tests.web.quickstart import own_environment

Serve = Callable[..., Client]


def view(request: HttpRequest, id: int) -> HttpResponse: ...


def found() -> list[str]:
    return [str(message.msg) for message in run_checks() if message.id == "distlock.E013"]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "redis://127.0.0.1:1"}}


@pytest.mark.parametrize("fence", [True, False, "other"])
def test_a_fence_in_a_database_of_the_site_passes(serve: Serve, fence: bool | str) -> None:
    serve(distributed_lock("product_<id>", fence=fence)(view))
    assert found() == []


def test_a_fence_in_an_unknown_database_is_found(serve: Serve) -> None:
    serve(distributed_lock("product_<id>", fence="archive")(view))
    [problem] = found()
    assert problem.startswith(f"{__name__}.view: fence='archive' names no database")


@pytest.mark.parametrize("setting", [None, {}])
def test_it_is_found_without_a_setting(serve: Serve, settings: Any, setting: object) -> None:
    settings.DISTLOCK = setting
    serve(distributed_lock("product_<id>", fence="archive")(view))
    assert "fence='archive' names no database" in found()[0]


def test_that_of_an_alias_is_found(serve: Serve, settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "redis://127.0.0.1:1", "FENCE": "archive"}}
    serve([])
    [problem] = found()
    assert problem.startswith("DISTLOCK['default']: fence='archive' names no database")


def test_that_of_a_rule_is_found(rules: Serve) -> None:
    rules(
        [path("product/<int:id>", view, name="buy")], {"route": "buy", "lock": "product_<id>", "fence": "x"}
    )
    assert "fence='x' names no database" in found()[0]


def test_a_database_that_has_no_fence_is_found(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["other"], "vendor", "oracle")
    serve(distributed_lock("product_<id>", fence="other")(view))
    assert "The database 'other' is oracle" in found()[0]


MIGRATE = "Run: python manage.py migrate distlock"
TABLE = """
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["*"], DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": NAME}},
    INSTALLED_APPS=["django_distlock"], ROOT_URLCONF=__name__, DISTLOCK=SETTING,
)
import logging
from io import StringIO
from django.core.wsgi import get_wsgi_application
from django.test import RequestFactory
import django
django.setup()
from django.core.checks import run_checks
from django.core.management import call_command
urlpatterns = []

def found(**words):
    return [message.hint for message in run_checks(**words) if message.id == "distlock.W006"]

def first_request():
    told = logging.getLogger("distlock").handlers[:] = [logging.StreamHandler(StringIO())]
    for _ in range(2):
        list(application(RequestFactory().get("/").environ, lambda *_: None))
    return told[0].stream.getvalue().splitlines()

application = get_wsgi_application()
print(found(databases=["default"]))
print(found())
print(first_request())
call_command("migrate", "distlock", verbosity=0, skip_checks=False)
print(found(databases=["default"]))
"""


@pytest.mark.parametrize(
    ("setting", "hints"),
    [
        ({"default": {"BACKEND": "database"}}, [MIGRATE]),
        (
            {"default": {"LOCATION": "redis://127.0.0.1:1", "FENCE": True}},
            [MIGRATE],
        ),
        ({"default": {"LOCATION": "redis://127.0.0.1:1"}}, []),
    ],
)
def test_a_missing_table_is_found_where_the_database_is_asked(
    tmp_path: Path, setting: object, hints: list[str]
) -> None:
    database = tmp_path / "shop.sqlite3"
    database.touch()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            TABLE.replace("SETTING", repr(setting)).replace("NAME}", f"{str(database)!r}}}"),
        ],
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    named, plain, first_request, *migrated = done.stdout.splitlines()
    assert [named, plain, *migrated] == [str(hints), str(hints), "[]"]
    assert ("is missing in the database 'default'. " + MIGRATE in first_request) is bool(hints)


def test_a_batch_needs_the_transaction_of_one_database(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(distributed_lock("product_<id>", batch=32)(view))
    [problem] = found()
    assert "no transaction that requests could share: write fence=True beside it" in problem
    serve(distributed_lock("product_<id>", batch=32, fence=True)(view))
    assert found() == []
    monkeypatch.setitem(connections.settings["other"], "ATOMIC_REQUESTS", True)
    [problem] = found()
    assert "transactions of several databases: 'other', 'default'" in problem
