"""Two guards on one view, each of which may leave a request to the other: as a rule around a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.views import APIView

from distlock.grants.current import current_grants
from distlock.web.guard_options import GuardOptions
from django_distlock import distributed_lock
from django_distlock.guarding.views import guard_view
from tests.django_distlock.guarding.test_every_placement import database
from tests.django_distlock.watching import Events, by_asgi, by_wsgi, watched

__all__ = ["database"]


def function(events: Events, decorate: Any) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        events.append("view" if current_grants() else "view without lock")
        return HttpResponse("sold")

    return decorate(view)


def methods_of(base: type, events: Events) -> Any:
    def answer(self: Any, request: HttpRequest, id: int) -> HttpResponse:
        return function(events, lambda view: view)(request, id)

    return type("Buy", (base,), {"__module__": __name__, "get": answer, "post": answer})


VIEWS: dict[str, Callable[[Events, Any], Any]] = {
    "function": function,
    "class": lambda events, decorate: decorate(methods_of(View, events)).as_view(),
    "dispatch": lambda events, decorate: method_decorator(decorate, name="dispatch")(
        methods_of(View, events)
    ).as_view(),
    "api class": lambda events, decorate: decorate(methods_of(APIView, events)).as_view(),
    "api dispatch": lambda events, decorate: method_decorator(decorate, name="dispatch")(
        methods_of(APIView, events)
    ).as_view(),
}

LOCKED = ["lock", "BEGIN", "view", "COMMIT", "release"]
UNLOCKED = ["BEGIN", "view without lock", "COMMIT"]


@pytest.mark.parametrize("ask", [by_wsgi, by_asgi])
@pytest.mark.parametrize("inner", ["GET", "POST"])
@pytest.mark.parametrize("outer", ["GET", "POST"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_one_of_them_locks_and_one_of_them_begins(
    make: Callable[[Events, Any], Any],
    method: str,
    outer: str,
    inner: str,
    ask: Callable[[str, str], int],
    database: dict[str, Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(database, "ATOMIC_REQUESTS", True)
    events = Events()
    view = make(events, distributed_lock("product_<id>", methods=[inner]))

    class Urls:
        urlpatterns = [
            path("product/<int:id>", guard_view(view, GuardOptions(["product_<id>"], methods=[outer])))
        ]

    settings.ROOT_URLCONF = Urls
    with watched(events):
        assert ask(method, "/product/1") == 200
    assert events == (LOCKED if method in {outer, inner} else UNLOCKED)


@pytest.mark.parametrize("inner", ["GET", "POST"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_what_a_predicate_leaves_is_locked_or_begun_by_the_other(
    make: Callable[[Events, Any], Any],
    inner: str,
    database: dict[str, Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(database, "ATOMIC_REQUESTS", True)
    events = Events()
    view = make(events, distributed_lock("product_<id>", methods=[inner]))

    class Urls:
        urlpatterns = [path("product/<int:id>", guard_view(view, GuardOptions(["product_<id>"]), when=never))]

    settings.ROOT_URLCONF = Urls
    with watched(events):
        assert by_wsgi("POST", "/product/1") == 200
    assert events == (LOCKED if inner == "POST" else UNLOCKED)


def never(request: HttpRequest, id: int) -> bool:
    return False
