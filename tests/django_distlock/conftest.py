from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.urls import path

from tests.postgres import running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[int]:
    """The port of a private PostgreSQL."""
    with running_postgres() as port:
        yield port


@pytest.fixture
def serve(settings: Any) -> Callable[..., Client]:
    """Serve views: `serve(buy)` at ``/product/<int:id>``, or a list of patterns. Gives a client."""

    def serve(view: Any, route: str = "product/<int:id>") -> Client:
        class Urls:
            urlpatterns = view if isinstance(view, list) else [path(route, view)]

        settings.ROOT_URLCONF = Urls
        return Client()

    return serve


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ATOMIC_REQUESTS = True`` on the default database."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
