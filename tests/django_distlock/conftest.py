from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.urls import path


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


def rule(**words: object) -> dict[str, object]:
    """A rule for the route ``buy``."""
    return {"route": "buy", "lock": "product_<id>", "timeout": 0, **words}


@pytest.fixture
def rules(settings: Any, serve: Callable[..., Client]) -> Callable[..., Client]:
    """Serve views under rules: `rules(buy)` has the usual one, over the route ``buy``. Gives a client."""

    def under_rules(view: Any, *given: dict[str, object]) -> Client:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_distlock.middleware.DistlockMiddleware"]
        settings.DISTLOCK_RULES = given or [rule()]
        return serve(view if isinstance(view, list) else [path("product/<int:id>", view, name="buy")])

    return under_rules
