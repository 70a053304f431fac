"""A database with fewer pooled connections than callers, and a middleware that reads before the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.http import HttpRequest, HttpResponse
from sqlalchemy import make_url

from django_distlock import locks
from tests.databases import Databases

ALIAS = "pooled"
CONNECTIONS = 3

#: Seconds after which the pool says that it has no connection. Only a run that fails waits for it.
PATIENCE = 8


def read() -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT 1")


def reading_first(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """As a middleware that looks up the session of a request."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if "session" in request.GET:
            read()
        return get_response(request)

    return middleware


@pytest.fixture(scope="module")
def database(databases: Databases) -> str:
    return databases("postgresql", "pooled")


@pytest.fixture
def pool(database: str, django_db_blocker: Any, settings: Any) -> Iterator[Any]:
    url = make_url(database)
    pool = {"min_size": 1, "max_size": CONNECTIONS, "timeout": PATIENCE}
    own = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "HOST": url.host,
        "PORT": url.port,
        "USER": url.username,
        "OPTIONS": {"pool": pool},
    }
    settings.MIDDLEWARE = [f"{__name__}.reading_first"]
    with django_db_blocker.unblock():
        connections.settings[ALIAS] = connections.configure_settings({"default": own})["default"]
        try:
            call_command("migrate", "distlock", database=ALIAS, verbosity=0)
            yield connections[ALIAS].pool
        finally:
            locks.close_all()
            connections[ALIAS].close()
            connections[ALIAS].close_pool()
            del connections[ALIAS], connections.settings[ALIAS]
