"""Guards behind wrappers, instances and libraries: locked or refused, and the check says what it sees."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.checks import run_checks
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from ninja import NinjaAPI
from ninja.decorators import decorate_view

from distlock import current_grant
from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

_numbers = itertools.count()

lock = distributed_lock("product_<int:id>")


def sell(request: HttpRequest, id: int, **more: object) -> HttpResponse:
    return HttpResponse(current_grant().names[0])


locked = lock(sell)


class Instance:
    @lock
    def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)

    @lock
    def bound(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)

    @staticmethod
    @lock
    def static(request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)


class Calls:
    def __init__(self, view: Callable[..., HttpResponse]) -> None:
        self.view = view

    def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
        return self.view(request, id=id)


def silently(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A decorator without `functools.wraps`."""

    def inner(request: HttpRequest, id: int) -> HttpResponse:
        return view(request, id=id)

    return inner


class Sell(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)


def sub(**members: Any) -> Any:
    return type("Sub", (Sell,), {"__module__": __name__, **members})


def on_post(*decorators: Any) -> Callable[..., Any]:
    return sub(post=method_decorator(list(decorators))(Sell.post)).as_view()


@lock
async def async_view(request: HttpRequest, id: int) -> HttpResponse:
    return sell(request, id)


def api(*decorators: Callable[..., Any]) -> Any:
    """An operation of django-ninja with *decorators*, the outermost first."""
    site = NinjaAPI(urls_namespace=f"api{next(_numbers)}", docs_url=None, openapi_url=None)

    def post(request: HttpRequest, id: int) -> str:
        return current_grant().names[0]

    function: Any = post
    for decorator in reversed(decorators):
        function = decorator(function)
    site.post("/{int:id}", url_name="buy")(function)
    return site.urls


class Other(transaction.Atomic):
    """A site's own."""


ARRANGEMENTS: dict[str, Callable[[], Any]] = {
    "the decorator": lambda: locked,
    "partial": lambda: functools.partial(locked, more=1),
    "partial of as_view": lambda: functools.partial(lock(sub()).as_view()),
    "partial of a partial": lambda: functools.partial(functools.partial(locked, more=1), other=2),
    "partial that says what it wraps": lambda: functools.update_wrapper(functools.partial(locked), locked),
    "a wrapper that copies nothing": lambda: functools.wraps(locked, updated=())(
        lambda request, id: locked(request, id)
    ),
    "a wrapper that does not say so": lambda: silently(locked),
    "two of them": lambda: silently(silently(locked)),
    "one of them around partial": lambda: silently(functools.partial(locked)),
    "one of them around as_view": lambda: silently(lock(sub()).as_view()),
    "an object that calls it": lambda: Calls(locked),
    "an object that calls such a wrapper": lambda: Calls(silently(locked)),
    "an instance": Instance,
    "a bound method": lambda: Instance().bound,
    "a static method": lambda: Instance.static,
    "partial of an instance": lambda: functools.partial(Instance()),
    "sync_to_async": lambda: sync_to_async(locked),
    "sync_to_async of as_view": lambda: sync_to_async(lock(sub()).as_view()),
    "async_to_sync": lambda: async_to_sync(async_view),
    "atomic": lambda: transaction.atomic(locked),
    "atomic with a database": lambda: transaction.atomic(using="default")(locked),
    "durable": lambda: transaction.atomic(durable=True)(locked),
    "a subclass of atomic": lambda: Other("default", True, False)(locked),
    "atomic around partial": lambda: transaction.atomic(functools.partial(locked)),
    "partial around atomic": lambda: functools.partial(transaction.atomic(locked)),
    "atomic below": lambda: lock(transaction.atomic(sell)),
    "atomic around as_view": lambda: transaction.atomic(lock(sub()).as_view()),
    "atomic on dispatch, below": lambda: lock(
        method_decorator(transaction.atomic, name="dispatch")(sub())
    ).as_view(),
    "atomic above, on dispatch": lambda: method_decorator(transaction.atomic, name="dispatch")(
        method_decorator(lock, name="dispatch")(sub())
    ).as_view(),
    "atomic on dispatch, the guard on post": lambda: method_decorator(transaction.atomic, name="dispatch")(
        sub(post=lock(Sell.post))
    ).as_view(),
    "the guard on post": lambda: sub(post=lock(Sell.post)).as_view(),
    "atomic above, on post": lambda: sub(
        post=method_decorator(transaction.atomic)(lock(Sell.post))
    ).as_view(),
    "atomic above without method_decorator": lambda: sub(post=transaction.atomic(lock(Sell.post))).as_view(),
    "atomic first in a list": lambda: on_post(transaction.atomic, lock),
    "atomic second in a list": lambda: on_post(lock, transaction.atomic),
    "atomic with a database in a list": lambda: on_post(transaction.atomic(using="default"), lock),
    "atomic in a subclass": lambda: type(
        "Inherits",
        (sub(post=lock(Sell.post)),),
        {"__module__": __name__, "post": transaction.atomic(_calls_super)},
    ).as_view(),
    "ninja": lambda: api(lock),
    "ninja, atomic above": lambda: api(transaction.atomic, lock),
    "ninja, atomic below": lambda: api(lock, transaction.atomic),
    "ninja, with methods": lambda: api(distributed_lock("product_<int:id>", methods=["POST"])),
    "ninja, decorate_view": lambda: api(decorate_view(lock)),
}


def _calls_super(self: Any, request: HttpRequest, id: int) -> HttpResponse:
    return super(type(self), self).post(request, id)  # type: ignore[misc,no-any-return]


def served(view: Any) -> list[Any]:
    if isinstance(view, tuple):
        return [path("product/", view)]
    return [path("product/<int:id>", view, name="buy")]


def errors() -> list[str]:
    return [str(message.msg) for message in run_checks() if str(message.id).startswith("distlock.E")]


#: What only a request refuses, under ATOMIC_REQUESTS or without: what is around the guard does not say what
#: it wraps, or what it does.
UNSEEN = {
    "a wrapper that does not say so": {True},
    "two of them": {True},
    "one of them around partial": {True},
    "one of them around as_view": {True},
    "an object that calls it": {True},
    "an object that calls such a wrapper": {True},
    "ninja": {True},
    "ninja, atomic above": {True, False},
    "ninja, atomic below": {True},
    "ninja, with methods": {True, False},
    "ninja, decorate_view": {True},
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [True, False], ids=["ATOMIC_REQUESTS", "autocommit"])
@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_a_request_is_locked_or_refused_and_the_check_says_so(
    serve: Callable[..., Client],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    atomic_requests: bool,
) -> None:
    settings.DISTLOCK = "memory://hidden"
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic_requests)
    client = serve(served(ARRANGEMENTS[name]()))
    unseen = atomic_requests in UNSEEN.get(name, ())
    found = errors()
    assert not (found and unseen)
    if found or unseen:
        with pytest.raises(ConfigurationError):
            client.post("/product/1")
    else:
        assert "product_1" in client.post("/product/1").content.decode()


class Plain:
    def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request, id)


REFUSED = {
    "partial": (lambda: functools.partial(locked, more=1), lambda: functools.partial(sell, more=1)),
    "an instance": (Instance, Plain),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("refused", "without"), REFUSED.values(), ids=REFUSED)
def test_the_line_to_write_helps(
    serve: Callable[..., Client],
    settings: Any,
    atomic_requests: None,
    refused: Callable[[], Any],
    without: Callable[[], Any],
) -> None:
    settings.DISTLOCK = "memory://hidden"
    serve(served(refused()))
    [message] = errors()
    line = message[message.index("[{") : message.index("}]") + 2]
    settings.DISTLOCK_RULES = eval(line)
    settings.MIDDLEWARE = [message[message.index("with '") :].split("'")[1]]
    client = serve(served(without()))
    assert errors() == []
    assert "product_1" in client.post("/product/1").content.decode()


def test_a_route_without_a_name_is_told_to_get_one(
    serve: Callable[..., Client], atomic_requests: None
) -> None:
    serve([path("product/<int:id>", functools.partial(locked))])
    [message] = errors()
    assert message.endswith("Give the route a name, and write that in it.")


def test_the_guard_above_the_decorator_of_ninja_would_never_lock() -> None:
    site = NinjaAPI(urls_namespace="above", docs_url=None)
    with pytest.raises(ConfigurationError, match="so that requests go past it: write it below"):

        @lock
        @site.post("/{int:id}")
        def post(request: HttpRequest, id: int) -> str:
            return "sold"


def test_what_is_called_as_a_view_is_answered_as_one(serve: Callable[..., Client], settings: Any) -> None:
    """A guarded ``__call__`` used to be a plain function to its guard: its client got a 500."""
    settings.DISTLOCK = "memory://hidden"

    class Impatient:
        @distributed_lock("product_<int:id>", timeout=0)
        def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
            return sell(request, id)

    client = serve(Impatient())
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423
