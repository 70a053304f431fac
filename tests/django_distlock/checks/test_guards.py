"""System checks of guards: their names against the routes, and their aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required, permission_required
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt

from django_distlock import distributed_lock, locks
from tests.hostile.site import SESSIONS

Serve = Callable[..., Client]


@distributed_lock("product_<id>")
def buy(request: HttpRequest, id: int) -> HttpResponse: ...


@distributed_lock("product_<int:pk>")
def buy_by_pk(request: HttpRequest, pk: int = 1, **kwargs: object) -> HttpResponse: ...


@distributed_lock("<slug:shop>_<int:id>")
def buy_anything(request: HttpRequest, **kwargs: object) -> HttpResponse: ...


def found() -> list[str]:
    return sorted(message.id for message in run_checks() if message.id.startswith("distlock."))


def hints() -> str:
    return " ".join(f"{m.msg} {m.hint}" for m in run_checks() if m.id.startswith("distlock."))


@pytest.fixture(autouse=True)
def no_warnings(settings: Any) -> None:
    settings.DEBUG = True


def test_a_name_that_the_route_does_not_have_is_found(serve: Serve) -> None:
    serve(buy, "buy/<int:product>")
    assert found() == ["distlock.E005"]
    assert "the route 'buy/<int:product>' has no 'id'. The route has: product." in hints()


def test_it_is_found_through_includes(serve: Serve) -> None:
    serve([path("shop/", include([path("buy/", buy)]))])
    assert found() == ["distlock.E005"]
    assert "shop/buy/" in hints()


def test_what_an_include_or_a_dict_gives_is_there(serve: Serve) -> None:
    serve([path("<slug:shop>/", include([path("<int:id>", buy_anything)]))])
    assert found() == []
    serve([path("buy/", buy, {"id": 1})])
    assert found() == []


def test_a_default_needs_no_route(serve: Serve) -> None:
    serve(buy_by_pk, "buy/")
    assert found() == []


def test_behind_other_decorators_it_is_a_warning_for_they_may_add_it(serve: Serve) -> None:
    serve(csrf_exempt(buy), "buy/")
    assert found() == ["distlock.W003"]


@pytest.mark.parametrize(
    ("route", "line"),
    [
        ("buy/<id>", "'product_<int:id>'"),
        ("buy/<path:id>", "'product_<int:id>'"),
        ("buy/<slug:id>", "'product_<slug:id>'"),
    ],
)
def test_text_in_a_bare_placeholder_is_found(serve: Serve, route: str, line: str) -> None:
    serve(buy, route)
    assert found() == ["distlock.E006"]
    assert f"Write @distributed_lock({line})" in hints()


def test_the_groups_of_a_regular_expression_are_text(serve: Serve) -> None:
    serve([re_path(r"^buy/(?P<id>[0-9]+)$", buy)])
    assert found() == ["distlock.E006"]


def test_groups_without_names_fill_in_what_the_view_calls_them(serve: Serve) -> None:
    by_order = distributed_lock("product_<int:id>")(buy.__wrapped__)
    serve([re_path(r"^(\d+)/$", include([re_path(r"^(\d+)$", by_order)])), re_path(r"^(\d+)$", by_order)])
    assert found() == []
    serve([path("<slug:shop>/", include([re_path(r"^(\d+)$", by_order)]))])
    assert found() == ["distlock.E005"]


@pytest.mark.parametrize("route", ["buy/<int:id>", "buy/<uuid:id>"])
def test_what_has_one_spelling_passes(serve: Serve, route: str) -> None:
    serve(buy, route)
    assert found() == []


def test_an_alias_that_does_not_exist_is_found(serve: Serve, settings: Any) -> None:
    serve(distributed_lock("product_<id>", alias="othr")(buy.__wrapped__))
    assert found() == ["distlock.E007"]
    assert "test_guards.buy at the route 'product/<int:id>' names the alias 'othr'" in hints()
    assert "Known are 'default'." in hints()
    settings.DISTLOCK = {name: {"LOCATION": "memory://x"} for name in ("default", "othr")}
    assert found() == []


def test_of_settings_that_are_wrong_no_alias_is_asked(serve: Serve, settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://", "TTLL": 3}}
    serve(distributed_lock("product_<id>", alias="othr")(buy.__wrapped__))
    assert found() == ["distlock.E003"]


def test_forgotten_parentheses_are_found(serve: Serve) -> None:
    serve(csrf_exempt(distributed_lock(buy.__wrapped__)))
    assert found() == ["distlock.E008"]
    assert "test_guards.buy: A lock needs a name" in hints()


@pytest.mark.attack("A20")
@pytest.mark.parametrize("login", [login_required, permission_required("shop.buy")])
def test_a_lock_above_the_login_is_found(serve: Serve, login: Callable[..., Any]) -> None:
    lock = distributed_lock("product_<id>")
    serve(lock(login(buy.__wrapped__)))
    assert found() == ["distlock.W010"]
    assert 'write @distributed_lock("product_<id>") below @login_required' in hints()
    serve(login(lock(buy.__wrapped__)))
    assert found() == []


@pytest.mark.attack("A20", control=True)
def test_above_the_login_the_lock_has_anonymous_clients_in_its_queue(serve: Serve, settings: Any) -> None:
    settings.MIDDLEWARE = SESSIONS
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    lock = distributed_lock("product_<id>", timeout=0)
    with locks.lock("product_1"):
        assert serve(login_required(lock(buy.__wrapped__))).get("/product/1").status_code == 302
        assert serve(lock(login_required(buy.__wrapped__))).get("/product/1").status_code == 423
