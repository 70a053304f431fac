"""A rule's lock is asked for after everything else that may turn a request away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from rest_framework.decorators import api_view, permission_classes
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.viewsets import ViewSet

from django_distlock import locks
from tests.django_distlock.conftest import rule

Rules = Callable[..., Client]


def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(f"{request.method} {'locked' if locks.lock('product_1').locked() else 'free'}")


def status_while_locked(client: Client, **headers: Any) -> int:
    """423 if the lock was asked for: it is taken. Anything else if the request was turned away before."""
    with locks.lock("product_1"):
        return client.post("/product/1", **headers).status_code


@pytest.fixture(params=["above", "below"])
def others(request: pytest.FixtureRequest, settings: Any) -> Callable[..., None]:
    """Other middlewares, above or below ours."""

    def install(*names: str) -> None:
        ours = settings.MIDDLEWARE
        settings.MIDDLEWARE = [*names, *ours] if request.param == "above" else [*ours, *names]

    return install


def test_a_post_without_a_token_is_turned_away_and_no_lock_is_asked_for(
    rules: Rules, others: Callable[..., None]
) -> None:
    rules(buy)
    others("django.middleware.csrf.CsrfViewMiddleware")
    assert status_while_locked(Client(enforce_csrf_checks=True)) == 403
    with_token = Client(enforce_csrf_checks=True, headers={"x-csrftoken": "x" * 32})
    with_token.cookies["csrftoken"] = "x" * 32
    assert status_while_locked(with_token) == 423
    assert with_token.post("/product/1").content == b"POST locked"


def test_a_view_that_is_exempt_stays_so(rules: Rules, others: Callable[..., None]) -> None:
    rules(csrf_exempt(buy))
    others("django.middleware.csrf.CsrfViewMiddleware")
    assert Client(enforce_csrf_checks=True).post("/product/1").content == b"POST locked"


def test_what_is_below_the_rule_runs_inside_the_lock(rules: Rules) -> None:
    assert status_while_locked(rules(ensure_csrf_cookie(buy))) == 423


@pytest.fixture
def sessions(settings: Any) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        *settings.MIDDLEWARE,
    ]


@pytest.mark.usefixtures("sessions", "db")
class TestLogin:
    @pytest.mark.attack("A20")
    def test_the_middleware_that_wants_a_login_comes_first(self, rules: Rules, settings: Any) -> None:
        client = rules(buy)
        settings.MIDDLEWARE = [
            *settings.MIDDLEWARE,
            "django.contrib.auth.middleware.LoginRequiredMiddleware",
        ]
        assert status_while_locked(client) == 302
        self.log_in(client)
        assert status_while_locked(client) == 423
        assert client.post("/product/1").content == b"POST locked"

    def test_the_decorator_that_wants_a_login_is_part_of_the_view(self, rules: Rules) -> None:
        # The rule is the outermost of all: a request that the view turns away has waited for its lock.
        client = rules(login_required(buy))
        assert status_while_locked(client) == 423
        assert client.post("/product/1").status_code == 302

    def test_a_name_may_take_the_user(self, rules: Rules) -> None:
        client = rules(buy, rule(lock="cart_<user.pk>"))
        assert client.post("/product/1").status_code == 403
        user = self.log_in(client)
        with locks.lock(f"cart_{user.pk}"):
            assert client.post("/product/1").status_code == 423

    @staticmethod
    def log_in(client: Client) -> Any:
        from django.contrib.auth.models import User

        user, _ = User.objects.get_or_create(username="ann")
        client.force_login(user)
        return user


class TestRestFramework:
    def test_permissions_come_first(self, rules: Rules) -> None:
        @api_view(["POST"])
        @permission_classes([IsAuthenticated])
        def view(request: Any, id: int) -> HttpResponse:
            return buy(request._request, id)

        assert status_while_locked(rules(view)) == 403

    def test_who_is_permitted_is_locked(self, rules: Rules) -> None:
        @api_view(["POST"])
        @permission_classes([AllowAny])
        def view(request: Any, id: int) -> HttpResponse:
            return buy(request._request, id)

        client = rules(view)
        assert status_while_locked(client) == 423
        assert client.post("/product/1").content == b"POST locked"

    def test_one_action_of_a_view_set_is_locked(self, rules: Rules) -> None:
        class Products(ViewSet):
            permission_classes = [AllowAny]

            def reduce(self, request: Any, id: int) -> HttpResponse:
                return buy(request._request, id)

            def show(self, request: Any, id: int) -> HttpResponse:
                return buy(request._request, id)

        client = rules(
            [
                path("product/<int:id>", Products.as_view({"post": "reduce", "get": "show"}), name="buy"),
                path("free/<int:id>", Products.as_view({"post": "show"}), name="free"),
            ]
        )
        assert status_while_locked(client) == 423
        assert client.post("/product/1").content == b"POST locked"
        assert client.get("/product/1").content == b"GET free"
        assert client.post("/free/1").content == b"POST free"


class Recording:
    """A middleware with every hook that a view passes."""

    calls: list[str] = []

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        held = "locked" if locks.lock("product_1").locked() else "free"
        self.calls.append(f"view {view.__name__} {held}")

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        held = "locked" if locks.lock("product_1").locked() else "free"
        self.calls.append(f"exception {held}")
        return HttpResponse(status=418)


def test_every_hook_of_other_middlewares_runs_outside_the_lock(
    rules: Rules, others: Callable[..., None]
) -> None:
    def fail(request: HttpRequest, id: int) -> HttpResponse:
        raise ZeroDivisionError

    rules(fail)
    others(f"{__name__}.Recording")
    recording = sys.modules[__name__].Recording
    recording.calls.clear()
    assert Client().post("/product/1").status_code == 418
    assert recording.calls == ["view fail free", "exception free"]
