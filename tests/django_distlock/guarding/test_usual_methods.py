"""No HTTP method sells without the lock, also none that a client made up, where a guard names no methods."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django import forms
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.generic import FormView
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock, locks

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BUY", "PROPFIND")

lock = distributed_lock("product_<id>", timeout=0)

#: What has sold since the test began, by method.
sold: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sold() -> None:
    sold.clear()


def sell(request: Any, **kwargs: Any) -> HttpResponse:
    sold.append(request.method)
    return HttpResponse("sold")


def show_or_sell(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("form") if request.method == "GET" else sell(request)


class Shown(View):
    def get(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("price")

    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request)


class MadeUp(Shown):
    http_method_names = [*View.http_method_names, "buy"]

    def buy(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request)


class OwnHead(Shown):
    def head(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request)

    options = trace = head


class OwnDispatch(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return show_or_sell(request, *args, **kwargs)


class OwnRefusal(Shown):
    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return sell(request)


class Added(Shown):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.propfind = self.post
        self.http_method_names = [*self.http_method_names, "propfind"]


class AddedHead(Shown):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.head = self.options = self.post


class Buying(FormView):
    form_class = forms.Form

    def form_valid(self, form: Any) -> HttpResponse:
        return sell(self.request)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("form")


class Cart(ViewSet):
    def show(self, request: Any, id: int) -> Response:
        return Response("cart")

    def buy(self, request: Any, id: int) -> Response:
        return Response(sell(request).status_code)


class RestShop(APIView):
    def get(self, request: Any, id: int) -> Response:
        return Response("price")

    def post(self, request: Any, id: int) -> Response:
        return Response(sell(request).status_code)

    patch = post


class RestOverridden(RestShop):
    """The method of the request is what the form says."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        request.method = request.GET.get("_method", request.method)
        return super().initialize_request(request, *args, **kwargs)

    delete = RestShop.post


class RestOverriddenLate(RestShop):
    """So it is here, and only REST framework's request knows."""

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        request.method = request.query_params.get("_method", request.method)


class RestRefusal(RestShop):
    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(sell(request).status_code)


def buy_or_show(request: Any, id: int) -> Response:
    return Response("price") if request.method == "GET" else Response(sell(request).status_code)


def above(cls: Any) -> Any:
    return lock(type(cls.__name__, (cls,), {"__module__": __name__})).as_view()


def on_dispatch(cls: Any) -> Any:
    named = type(cls.__name__, (cls,), {"__module__": __name__})
    return method_decorator([never_cache, lock], name="dispatch")(named).as_view()


CLASSES = [
    Shown,
    MadeUp,
    OwnHead,
    OwnDispatch,
    OwnRefusal,
    Added,
    AddedHead,
    Buying,
    RestShop,
    RestOverridden,
    RestOverriddenLate,
    RestRefusal,
]
ACTIONS = {"get": "show", "head": "buy", "put": "buy"}
API = api_view(["GET", "HEAD", "POST", "PUT"])

VIEWS: dict[str, Any] = {
    "function": lock(show_or_sell),
    "api function": lock(API(buy_or_show)),
    "view set": lock(Cart.as_view(ACTIONS)),
    **{f"{cls.__name__} above": above(cls) for cls in CLASSES},
    **{f"{cls.__name__} around": lock(cls.as_view()) for cls in CLASSES},
    **{f"{cls.__name__} on dispatch": on_dispatch(cls) for cls in CLASSES},
}

RULED: dict[str, Any] = {
    "function": show_or_sell,
    "api function": API(buy_or_show),
    "view set": Cart.as_view(ACTIONS),
    **{cls.__name__: cls.as_view() for cls in CLASSES},
}


def all_sent(client: Client) -> list[int]:
    """Send each method, by itself and as an override of GET."""
    answered = []
    for method in METHODS:
        for sent, query in ((method, ""), ("GET", f"?_method={method}")):
            answered.append(client.generic(sent, f"/product/1{query}").status_code)
    return answered


@pytest.mark.attack("A04")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_no_method_sells_beside_a_holder(serve: Callable[..., Client], view: Any) -> None:
    client = serve(view)
    with locks.lock("product_1"):
        all_sent(client)
        assert sold == []
    all_sent(client)
    assert sold


@pytest.mark.attack("A04")
@pytest.mark.parametrize("view", RULED.values(), ids=RULED)
def test_a_rule_lets_no_method_sell_beside_a_holder(rules: Callable[..., Client], view: Any) -> None:
    client = rules(view)
    with locks.lock("product_1"):
        all_sent(client)
        assert sold == []
    all_sent(client)
    assert sold


@pytest.mark.attack("A04", "A28", control=True)
@pytest.mark.parametrize("method", ["BUY", "GET", "HEAD"])
def test_a_guard_that_is_told_to_lock_post_lets_others_sell_beside_a_holder(
    serve: Callable[..., Client], method: str
) -> None:
    client = serve(distributed_lock("product_<id>", timeout=0, methods=["POST"])(sell))
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423
        assert client.generic(method, "/product/1").status_code == 200
    assert sold == [method]


class Blocked(Shown):
    inside, go_on = threading.Event(), threading.Event()

    def head(self, request: HttpRequest, id: int) -> HttpResponse:
        self.inside.set()
        assert self.go_on.wait(60)
        return sell(request)


def test_two_requests_with_head_are_not_inside_at_once(rules: Callable[..., Client]) -> None:
    client = rules(Blocked.as_view())
    first = threading.Thread(target=client.head, args=("/product/1",))
    first.start()
    assert Blocked.inside.wait(60)
    assert client.head("/product/1").status_code == 423
    Blocked.go_on.set()
    first.join(60)
    assert sold == ["HEAD"]


@pytest.mark.parametrize(
    "make", [above, lambda cls: lock(cls.as_view()), on_dispatch], ids=["above", "around", "on dispatch"]
)
def test_what_only_reads_and_what_is_not_answered_takes_no_lock(
    serve: Callable[..., Client], make: Callable[[Any], Any]
) -> None:
    client = serve(make(Shown))
    with locks.lock("product_1"):
        answers = {method: client.generic(method, "/product/1").status_code for method in METHODS}
    assert answers == dict.fromkeys(METHODS, 405) | {"GET": 200, "HEAD": 200, "OPTIONS": 200, "POST": 423}


def test_a_rest_view_likewise(serve: Callable[..., Client]) -> None:
    client = serve(above(RestShop))
    with locks.lock("product_1"):
        answers = {method: client.generic(method, "/product/1").status_code for method in METHODS}
    assert answers == dict.fromkeys(METHODS, 405) | dict.fromkeys(("GET", "HEAD", "OPTIONS"), 200) | {
        "POST": 423,
        "PATCH": 423,
    }


def test_a_rule_on_a_function_exempts_get_alone(rules: Callable[..., Client]) -> None:
    client = rules(show_or_sell)
    with locks.lock("product_1"):
        answers = {method: client.generic(method, "/product/1").status_code for method in METHODS}
    assert answers == dict.fromkeys(METHODS, 423) | {"GET": 200}


def test_a_handler_that_another_one_calls_is_locked_all_the_same(serve: Callable[..., Client]) -> None:
    class Guarded(Buying):
        @distributed_lock("product_<id>", timeout=0, methods=["POST"])
        def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return super().post(request, *args, **kwargs)

    client = serve(Guarded.as_view())
    with locks.lock("product_1"):
        assert client.put("/product/1").status_code == 423
    assert client.put("/product/1").status_code == 200
    assert sold == ["PUT"]


@pytest.mark.parametrize("methods", [["BUY"], ["buy", "POST"], ["PROPFIND"], ["*"]])
def test_a_method_that_clients_make_up_may_be_named(rules: Callable[..., Client], methods: list[str]) -> None:
    view = path("product/<int:id>", show_or_sell, name="buy")
    client = rules([view], {"route": "buy", "lock": "product_<id>", "timeout": 0, "methods": methods})
    with locks.lock("product_1"):
        for method in METHODS:
            named = methods == ["*"] or method in map(str.upper, methods)
            assert (client.generic(method, "/product/1").status_code == 423) is named


def test_readers_and_writers_of_one_route_may_have_a_rule_each(rules: Callable[..., Client]) -> None:
    view = path("product/<int:id>", show_or_sell, name="buy")
    reader: dict[str, object] = {"route": "buy", "lock": "product_<id>", "timeout": 0, "mode": "shared"}
    client = rules([view], reader, {"route": "buy", "lock": "product_<id>", "timeout": 0})
    with locks.lock("product_1"):
        answers = {method: client.generic(method, "/product/1").status_code for method in METHODS}
    # A reader enters inside the lock that its own thread holds.
    assert answers == dict.fromkeys(METHODS, 423) | {"GET": 200}
    assert {client.generic(method, "/product/1").status_code for method in METHODS} == {200}


class Overriding(Shown):
    """The method of the request is what the query says."""

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        request.method = request.GET.get("_method", request.method)
        super().setup(request, *args, **kwargs)


class OverridingInDispatch(Shown):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        request.method = request.GET.get("_method", request.method)
        return super().dispatch(request, *args, **kwargs)


class AsyncOverriding(View):
    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.method = request.GET.get("_method", request.method)

    async def get(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("price")

    async def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return sell(request)


def overriding(view: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(view)
    def changed(request: HttpRequest, **kwargs: Any) -> Any:
        request.method = request.GET.get("_method", request.method)
        return view(request, **kwargs)

    return changed


OVERRIDDEN: dict[str, Any] = {
    "setup": Overriding.as_view(),
    "dispatch": OverridingInDispatch.as_view(),
    "async": AsyncOverriding.as_view(),
    "decorator": overriding(Shown.as_view()),
    "decorator of a function": overriding(show_or_sell),
    "of a shared lock": distributed_lock("other_<id>", mode="shared")(Overriding.as_view()),
}


@pytest.mark.parametrize("view", OVERRIDDEN.values(), ids=OVERRIDDEN)
@pytest.mark.parametrize("sent", ["GET", "HEAD", "OPTIONS"])
def test_a_rule_refuses_a_method_that_is_changed_below_it(
    rules: Callable[..., Client], view: Any, sent: str
) -> None:
    client = rules(view)
    client.raise_request_exception = False
    with locks.lock("product_1"):
        answer = client.generic(sent, "/product/1?_method=POST")
        assert answer.status_code in {423, 500}
        assert client.get("/product/1").content in {b"form", b"price"}
    assert sold == []


@pytest.mark.parametrize("cls", [Overriding, OverridingInDispatch])
@pytest.mark.parametrize("make", [above, on_dispatch], ids=["above", "on dispatch"])
def test_a_class_does_so_too(serve: Callable[..., Client], make: Callable[[Any], Any], cls: Any) -> None:
    client = serve(make(cls))
    with locks.lock("product_1"), suppress(ConfigurationError):
        assert client.get("/product/1?_method=POST").status_code == 423
    assert sold == []


def test_the_refusal_names_the_remedy_which_locks(rules: Callable[..., Client]) -> None:
    client = rules(Overriding.as_view())
    with pytest.raises(ConfigurationError, match=r"came as GET.*makes it a POST.*methods=\[\"\*\"\]"):
        client.get("/product/1?_method=POST")
    every = [path("product/<int:id>", Overriding.as_view(), name="buy")]
    client = rules(every, {"route": "buy", "lock": "product_<id>", "timeout": 0, "methods": ["*"]})
    with locks.lock("product_1"):
        assert client.get("/product/1?_method=POST").status_code == 423
    assert client.get("/product/1?_method=POST").content == b"sold"


def test_a_request_that_is_not_locked_is_one_like_any_other(rules: Callable[..., Client]) -> None:
    seen: list[HttpRequest] = []

    def view(request: HttpRequest, id: int) -> HttpResponse:
        assert isinstance(request, WSGIRequest)
        request.method = "GET"
        with pytest.raises(ConfigurationError, match="came as GET"):
            copy.copy(request).method = "POST"
        seen.append(request)
        return HttpResponse(type(request).__name__)

    client = rules(view)
    assert client.get("/product/1").content == b"WSGIRequest"
    assert type(seen[0]) is WSGIRequest
    seen[0].method = "POST"
