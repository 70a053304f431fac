"""Guards that name methods, where a client reaches the same code with another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django import forms
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_http_methods, require_POST
from django.views.generic import FormView
from rest_framework import generics
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from django_distlock import distributed_lock

post_only = distributed_lock("product_<id>", methods=["POST"])


def found(which: str = "distlock.W009") -> list[str]:
    return [message.msg for message in run_checks() if message.id == which]


def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


def buy_by_api(request: Any, id: int) -> Response:
    return Response("sold")


async def abuy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


class Form(FormView):
    form_class = forms.Form

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("form")


class Alias(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    put = post


class Apart(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    def delete(self, request: HttpRequest, id: int) -> HttpResponse:
        request.session.flush()
        self.request.post = 1  # type: ignore[attr-defined]
        return HttpResponse("gone")


class OwnDispatch(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return HttpResponse("sold")


class Update(generics.UpdateAPIView):  # type: ignore[misc]
    pass


def sub(cls: Any) -> Any:
    return type(cls.__name__, (cls,), {"__module__": __name__})


put_only = distributed_lock("product_<id>", methods=["PUT"])

OPEN: dict[str, tuple[Any, str]] = {
    "function": (post_only(buy), r'takes any other method .*@require_http_methods\(\["GET", "POST"\]\)'),
    "async": (post_only(abuy), "takes any other method"),
    "locked for GET": (
        distributed_lock("product_<id>", methods=["GET"])(buy),
        r'@require_http_methods\(\["GET", "HEAD"\]\) above the guard, or name every method, methods=\["\*"\]',
    ),
    "takes PUT": (require_http_methods(["POST", "PUT"])(post_only(buy)), "takes PUT without the lock"),
    "takes HEAD": (
        require_http_methods(["POST", "GET", "HEAD"])(post_only(buy)),
        "takes HEAD without the lock",
    ),
    "api view": (post_only(api_view(["POST", "PUT"])(buy_by_api)), "takes PUT without the lock"),
    "put() calls post()": (post_only(sub(Form)).as_view(), r"put\(\) of .*Form answers PUT by post\(\)"),
    "around as_view": (post_only(Form.as_view()), r"put\(\) of .*Form answers PUT by post\(\)"),
    "on dispatch": (method_decorator(post_only, name="dispatch")(sub(Form)).as_view(), r"by post\(\)"),
    "put is post": (post_only(sub(Alias)).as_view(), r"put\(\) of .*Alias answers PUT by post\(\)"),
    "own dispatch": (post_only(sub(OwnDispatch)).as_view(), "takes any other method"),
    "one writer": (put_only(sub(Update)).as_view(), r"patch\(\) of .* answers PATCH by update\(\)"),
    "view set": (
        put_only(ModelViewSet.as_view({"put": "update", "patch": "partial_update"})),
        r"partial_update\(\) of .* answers PATCH by update\(\)",
    ),
}

CLOSED: dict[str, Any] = {
    "require_POST": require_POST(post_only(buy)),
    "require_POST below": post_only(require_POST(buy)),
    "require_POST, async": require_POST(post_only(abuy)),
    "GET and POST": require_http_methods(["GET", "POST"])(post_only(buy)),
    "not named": distributed_lock("product_<id>")(buy),
    "every": distributed_lock("product_<id>", methods=["*"])(buy),
    "two guards": distributed_lock("product_<id>")(post_only(buy)),
    "readers": distributed_lock("product_<id>", mode="shared", methods=["GET"])(buy),
    "api view": post_only(api_view(["GET", "POST"])(buy_by_api)),
    "class": distributed_lock("product_<id>")(Form.as_view()),
    "other code": post_only(Apart.as_view()),
}


@pytest.mark.attack("A04")
@pytest.mark.parametrize(("view", "message"), OPEN.values(), ids=OPEN)
def test_an_open_method_is_told(serve: Callable[..., Client], view: Any, message: str) -> None:
    serve(view)
    (problem,) = found()
    assert re.search(message, problem), problem


@pytest.mark.parametrize("view", CLOSED.values(), ids=CLOSED)
def test_where_no_method_is_open_nothing_is_told(serve: Callable[..., Client], view: Any) -> None:
    serve(view)
    assert found() == []


def test_a_rule_is_looked_at_as_well(rules: Callable[..., Client]) -> None:
    named = {"route": "buy", "lock": "product_<id>", "methods": ["POST"]}
    rules([path("product/<int:id>", buy, name="buy")], named)
    assert "takes any other method without the lock" in found()[0]


def test_a_rule_without_methods_is_not_told(rules: Callable[..., Client]) -> None:
    rules([path("product/<int:id>", buy, name="buy")])
    assert found() == []


class Checked:
    """A mixin of another package, which decides before the handler."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


class Loaded:
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)  # type: ignore[misc]


def with_guard_on_post(*bases: type) -> Any:
    guard = method_decorator(distributed_lock("product_<id>"), name="post")
    return guard(type("Buy", (*bases, Apart), {"__module__": __name__}))


@pytest.mark.parametrize(
    ("mixin", "name"), [(Checked, "dispatch"), (Loaded, "setup")], ids=["dispatch", "setup"]
)
def test_what_runs_before_a_locked_handler_is_told(
    serve: Callable[..., Client], mixin: type, name: str
) -> None:
    serve(with_guard_on_post(mixin).as_view())
    (problem,) = found("distlock.W011")
    assert f"{name}() of {__name__}.{mixin.__name__} runs before" in problem
    assert 'Write @distributed_lock("product_<id>") above the class Buy. A rule for the route' in problem


def test_a_dispatch_above_a_locked_one_is_told(serve: Callable[..., Client]) -> None:
    locked = method_decorator(distributed_lock("product_<id>"), name="dispatch")(sub(Apart))
    serve(type("Buy", (Checked, locked), {"__module__": __name__}).as_view())
    (problem,) = found("distlock.W011")
    assert f"dispatch() of {__name__}.Checked runs before" in problem


def test_the_dispatch_of_a_rest_view_is_told(serve: Callable[..., Client]) -> None:
    cls = type("Buy", (Checked, Update), {"__module__": __name__})
    serve(distributed_lock("product_<id>")(cls).as_view())
    (problem,) = found("distlock.W011")
    assert "Read it in the method that answers" in problem


@pytest.mark.parametrize(
    "make",
    [
        lambda: distributed_lock("product_<id>")(type("Buy", (Checked, Loaded, Apart), {})).as_view(),
        lambda: method_decorator(distributed_lock("product_<id>"), name="dispatch")(
            type("Buy", (Checked, Apart), {})
        ).as_view(),
        lambda: with_guard_on_post().as_view(),
    ],
    ids=["above the class", "on its own dispatch", "no override"],
)
def test_where_nothing_runs_before_nothing_is_told(
    serve: Callable[..., Client], make: Callable[[], Any]
) -> None:
    serve(make())
    assert found("distlock.W011") == []
