"""What a transaction is rolled back for in silence, or is not: answers that were made of exceptions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.backends.django import DjangoTemplates
from django.template.response import SimpleTemplateResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_protect
from ninja import NinjaAPI
from ninja.decorators import decorate_view
from ninja.errors import HttpError

from distlock.errors import ConfigurationError
from django_distlock import atomic, distributed_lock, locks

pytestmark = pytest.mark.django_db(transaction=True)

Serve = Callable[..., Client]

ENGINE = DjangoTemplates({"NAME": "django", "DIRS": [], "APP_DIRS": False, "OPTIONS": {}})

_numbers = itertools.count()


class SoldOut(Exception): ...


class OwnAPI(NinjaAPI):
    """With an `on_exception` of its own, which answers by itself."""

    def on_exception(self, request: HttpRequest, exc: Any) -> HttpResponse:
        if isinstance(exc, SoldOut):
            return HttpResponse("sold out", status=409)
        return super().on_exception(request, exc)


def api(raised: Exception | None, *decorators: Callable[..., Any], status: int = 200) -> Any:
    site = OwnAPI(urls_namespace=f"raising{next(_numbers)}", docs_url=None, openapi_url=None)

    def post(request: HttpRequest, id: int) -> Any:
        Group.objects.create(name="an order")
        if raised is not None:
            raise raised
        return site.create_response(request, "done", status=status)

    function: Any = post
    for decorator in reversed(decorators):
        function = decorator(function)
    site.post("/{int:id}", url_name="buy")(function)
    return [path("product/", site.urls)]


def the_decorated(raised: Exception | None, serve: Serve, rules: Serve, **told: Any) -> Client:
    return serve(api(raised, decorate_view(distributed_lock("product_<int:id>", **told))))


def a_rule(raised: Exception | None, serve: Serve, rules: Serve, **told: Any) -> Client:
    [route] = api(raised)
    name = route.namespace
    return rules([route], {"route": f"{name}:buy", "lock": "product_<int:id>", "methods": ["POST"], **told})


def the_function(raised: Exception | None, serve: Serve, rules: Serve, **told: Any) -> Client:
    return serve(api(raised, distributed_lock("product_<int:id>", **told)))


@pytest.mark.parametrize("raised", [HttpError(400, "sold out"), SoldOut()], ids=["HttpError", "its own"])
@pytest.mark.parametrize("told", [{"fence": True}, {"fence": True, "batch": 8}], ids=["fence", "batch"])
@pytest.mark.parametrize("place", [the_decorated, a_rule, the_function])
def test_an_answer_that_ninja_makes_of_an_exception_rolls_back(
    serve: Serve, rules: Serve, place: Callable[..., Client], told: dict[str, Any], raised: Exception
) -> None:
    client = place(raised, serve, rules, **told)
    response = client.post("/product/1")
    assert response.status_code in {400, 409}
    assert not Group.objects.exists()


@pytest.mark.parametrize("when", ["before the guard", "after the guard"])
def test_an_on_exception_that_is_set_on_the_api_itself_is_seen(serve: Serve, when: str) -> None:
    site = OwnAPI(urls_namespace=f"raising{next(_numbers)}", docs_url=None, openapi_url=None)
    original = site.on_exception

    def on_exception(request: HttpRequest, exc: Any) -> HttpResponse:
        if isinstance(exc, ZeroDivisionError):
            return HttpResponse("none left", status=409)
        return original(request, exc)

    def post(request: HttpRequest, id: int, raised: str) -> Any:
        Group.objects.create(name="an order")
        raise {"set": ZeroDivisionError(), "own": SoldOut(), "ninja": HttpError(400, "sold out")}[raised]

    if when == "before the guard":
        site.on_exception = on_exception  # type: ignore[method-assign]
    lock = decorate_view(distributed_lock("product_<int:id>", fence=True))
    site.post("/{int:id}/{raised}")(lock(post))
    site.on_exception = on_exception  # type: ignore[method-assign]
    client = serve([path("product/", site.urls)])
    statuses = [client.post(f"/product/1/{raised}").status_code for raised in ("set", "own", "ninja")]
    assert statuses == [409, 409, 400]
    assert not Group.objects.exists()
    del site.on_exception
    assert client.post("/product/1/own").status_code == 409


def test_under_atomic_requests_it_does_too(serve: Serve, rules: Serve, atomic_requests: None) -> None:
    response = a_rule(HttpError(400, "sold out"), serve, rules).post("/product/1")
    assert response.status_code == 400
    assert not Group.objects.exists()


@pytest.mark.parametrize("status", [200, 409])
def test_an_answer_that_an_operation_returns_is_committed(serve: Serve, status: int) -> None:
    lock = distributed_lock("product_<int:id>", fence=True)
    client = serve(api(None, decorate_view(lock), status=status))
    assert client.post("/product/1").status_code == status
    assert Group.objects.exists()


def swallow(savepoint: bool) -> None:
    Group.objects.create(name="an order")
    with suppress(SoldOut), transaction.atomic(savepoint=savepoint):
        raise SoldOut


@pytest.mark.parametrize("words", [{"fence": True}, {"fence": True, "batch": 8}], ids=["fence", "batch"])
@pytest.mark.parametrize("savepoint", [True, False])
def test_an_error_that_rolls_back_all_is_not_answered_as_a_success(
    serve: Serve, words: dict[str, Any], savepoint: bool
) -> None:
    @distributed_lock("product_<int:id>", **words)
    def view(request: HttpRequest, id: int) -> HttpResponse:
        swallow(savepoint)
        return HttpResponse("sold")

    client = serve(view)
    if savepoint:
        assert client.post("/product/1").content == b"sold"
        assert Group.objects.exists()
        return
    with pytest.raises(ConfigurationError, match=r"savepoint=False out.*set_rollback\(True\)"):
        client.post("/product/1")
    assert not Group.objects.exists()


def test_under_atomic_requests_it_is_not_either(serve: Serve, atomic_requests: None) -> None:
    @distributed_lock("product_<int:id>")
    def view(request: HttpRequest, id: int) -> HttpResponse:
        swallow(savepoint=False)
        return HttpResponse("sold")

    with pytest.raises(ConfigurationError, match="savepoint=False out"):
        serve(view).post("/product/1")


@pytest.mark.parametrize("says", ["409", "set_rollback", "both"])
def test_what_says_that_nothing_is_written_is_answered(serve: Serve, says: str) -> None:
    @distributed_lock("product_<int:id>", fence=True)
    def view(request: HttpRequest, id: int) -> HttpResponse:
        swallow(savepoint=False)
        if says != "409":
            transaction.set_rollback(True)
        return HttpResponse("nothing", status=200 if says == "set_rollback" else 409)

    assert serve(view).post("/product/1").content == b"nothing"
    assert not Group.objects.exists()


def test_a_transaction_of_ones_own_does_not_end_in_silence() -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, atomic(grant):
            swallow(savepoint=False)

    with pytest.raises(ConfigurationError, match="savepoint=False out"):
        buy()
    assert not Group.objects.exists()


def rendering(callback: Callable[[Any], object] | None, now: bool) -> Callable[..., Any]:
    def view(request: HttpRequest, id: int) -> Any:
        response = SimpleTemplateResponse(ENGINE.from_string("sold"))
        if callback is not None:
            response.add_post_render_callback(callback)
        return response.render() if now else response

    return view


def sell(response: Any) -> None:
    Group.objects.create(name=f"an order while locked: {locks.lock('product_1').locked()}")


@pytest.mark.parametrize("now", [True, False])
def test_what_is_sold_when_the_response_is_rendered_is_sold_under_the_lock(
    serve: Serve, now: bool, settings: Any
) -> None:
    client = serve(distributed_lock("product_<int:id>", fence=True)(rendering(sell, now)))
    if now:
        assert client.post("/product/1").content == b"sold"
        assert Group.objects.get().name == "an order while locked: True"
        return
    with pytest.raises(ConfigurationError, match=r"add_post_render_callback\(sell\).*response\.render\(\)"):
        client.post("/product/1")
    assert not Group.objects.exists()


def test_decorators_that_django_makes_of_middlewares_are_let_be(serve: Serve) -> None:
    view = distributed_lock("product_<int:id>", fence=True)(csrf_protect(rendering(None, now=False)))
    assert serve(view).post("/product/1").content == b"sold"
