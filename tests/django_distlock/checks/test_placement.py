"""What `manage.py check` finds out about guards on classes and their methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_POST
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_distlock import distributed_lock

Serve = Callable[..., Client]

lock = distributed_lock("product_<id>")
lower = distributed_lock("product_<id>", alias="new")
on_dispatch = method_decorator(lock, name="dispatch")


@pytest.fixture(autouse=True)
def no_other_warnings(settings: Any) -> None:
    settings.DEBUG = True


def found() -> dict[str, str]:
    """The messages by id."""
    return {m.id: f"{m.msg} {m.hint}" for m in run_checks() if m.id.startswith("distlock.")}


class Buy(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")


class BuyByApi(APIView):
    def post(self, request: Request, id: int) -> Response:
        return Response("sold")


class LockedPost(View):
    @lock
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")


def sub(cls: type, **members: Any) -> Any:
    return type(f"Sub{cls.__name__}", (cls,), {"__module__": __name__, **members})


VIEWS = {
    "class": lambda: lock(sub(Buy)).as_view(),
    "as_view": lambda: lock(Buy.as_view()),
    "dispatch": lambda: on_dispatch(sub(Buy)).as_view(),
    "post": lambda: LockedPost.as_view(),
    "post by name": lambda: method_decorator(lock, name="post")(sub(Buy)).as_view(),
    "api class": lambda: lock(sub(BuyByApi)).as_view(),
    "api dispatch": lambda: on_dispatch(sub(BuyByApi)).as_view(),
    "api view": lambda: lock(api_view(["POST"])(lambda request, id: Response("sold"))),
}
every_view = pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)


@every_view
def test_a_route_that_has_the_argument_passes(serve: Serve, make: Callable[[], Any]) -> None:
    serve(make())
    assert found() == {}


@every_view
def test_a_route_without_the_argument_is_found(serve: Serve, make: Callable[[], Any]) -> None:
    serve(make(), "product/<int:pk>")
    problems = found()
    assert list(problems) == ["distlock.E005"]
    assert (
        "is locked on 'product_<id>', but the route 'product/<int:pk>' has no 'id'"
        in problems["distlock.E005"]
    )
    assert "dummy" not in problems["distlock.E005"]


@every_view
def test_text_in_a_bare_placeholder_is_found(serve: Serve, make: Callable[[], Any]) -> None:
    serve(make(), "product/<id>")
    assert list(found()) == ["distlock.E006"]


def test_an_alias_of_a_method_that_does_not_exist_is_found(serve: Serve) -> None:
    other = distributed_lock("product_<id>", alias="othr")
    serve(method_decorator(other, name="post")(sub(Buy)).as_view())
    assert "SubBuy.post at the route" in found()["distlock.E007"]


def test_a_dispatch_that_may_add_the_argument_makes_it_a_warning(serve: Serve) -> None:
    def dispatch(self: Any, request: HttpRequest, **kwargs: Any) -> Any:
        return super(LockedPost, self).dispatch(request, id=1, **kwargs)

    serve(sub(LockedPost, dispatch=dispatch).as_view(), "product")
    assert list(found()) == ["distlock.W003", "distlock.W011"]


def test_each_route_of_a_view_set_is_looked_at(serve: Serve) -> None:
    @distributed_lock("product_<int:pk>")
    class Products(ViewSet):
        def list(self, request: Request) -> Response: ...

        def create(self, request: Request) -> Response: ...

        def update(self, request: Request, pk: str) -> Response: ...

        @action(detail=True)
        def price(self, request: Request, pk: str) -> Response: ...

    router = SimpleRouter()
    router.register("product", Products, basename="product")
    serve([path("", include(router.urls))])
    problems = found()
    assert list(problems) == ["distlock.E005"]
    assert "the route '^product/$' has no 'pk'" in problems["distlock.E005"]
    assert "write the decorator on its methods, or a rule" in problems["distlock.E005"]


def test_names_of_actions_are_looked_at(serve: Serve) -> None:
    class Products(ViewSet):
        @action(detail=True, methods=["post"])
        @lock
        def sell(self, request: Request, id: int) -> Response: ...

    router = SimpleRouter()
    router.register("product", Products, basename="product")
    serve([path("", include(router.urls))])
    assert "Products.sell is locked on 'product_<id>'" in found()["distlock.E005"]


@pytest.mark.parametrize("base", [LockedPost, on_dispatch(sub(Buy))])
def test_a_method_that_passes_the_lock_of_its_base_by_is_found(serve: Serve, base: type) -> None:
    name = "post" if base is LockedPost else "dispatch"

    def silent(self: Any, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")

    serve(sub(base, **{name: silent}).as_view())
    problems = found()
    assert list(problems) == ["distlock.E012"]
    assert f".Sub{base.__name__}.{name}() does not call that of its base" in problems["distlock.E012"]
    assert (
        f'Write @distributed_lock("product_<id>") above the class {base.__name__}'
        in problems["distlock.E012"]
    )


def sell(self: Any, request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")


class CallsAnother(LockedPost):
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return super().options(request, id)


SubBuy: Any = on_dispatch(sub(Buy))


class CallsPastIt(SubBuy):  # type: ignore[misc]
    def dispatch(self, request: HttpRequest, id: int) -> HttpResponse:
        return super(SubBuy, self).dispatch(request, id)  # type: ignore[no-any-return]


class CallsBetween(sub(LockedPost, post=sell)):  # type: ignore[misc]
    def post(self, request: HttpRequest, id: int) -> HttpResponse:
        return super().post(request, id)  # type: ignore[no-any-return]


@pytest.mark.parametrize("cls", [sub(LockedPost, post=sell), CallsAnother, CallsPastIt, CallsBetween])
def test_an_override_that_requests_pass_the_lock_by_is_found_however_it_is_written(
    serve: Serve, cls: Any
) -> None:
    serve(cls.as_view())
    assert "() does not call that of its base" in found()["distlock.E012"]


def test_a_method_that_calls_the_locked_one_of_its_base_passes(serve: Serve) -> None:
    class Sub(LockedPost):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return super().post(request, id)

    serve(Sub.as_view())
    assert found() == {}


def test_a_method_that_is_locked_by_itself_passes(serve: Serve) -> None:
    serve(lock(sub(LockedPost, post=Buy.post)).as_view())
    assert found() == {}
    serve(sub(LockedPost, post=lock(Buy.post)).as_view())
    assert found() == {}


def test_what_setup_reads_before_a_locked_dispatch_is_warned_about(serve: Serve) -> None:
    def setup(self: Any, request: HttpRequest, id: int) -> None:
        super(Buy, self).setup(request, id=id)

    reading = sub(Buy, setup=setup)
    serve(on_dispatch(sub(reading)).as_view())
    assert "above the class" in found()["distlock.W004"]
    serve(lock(sub(reading)).as_view())
    assert found() == {}


@pytest.mark.parametrize("name", ["setup", "initial"])
@pytest.mark.parametrize(
    "guard", [lock, on_dispatch, method_decorator(lock, name="post")], ids=["class", "dispatch", "post"]
)
def test_what_a_view_of_rest_framework_reads_before_its_handler_is_warned_about(
    serve: Serve, guard: Callable[..., Any], name: str
) -> None:
    def reads(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        getattr(super(BuyByApi, self), name)(request, *args, **kwargs)

    serve(guard(sub(BuyByApi, **{name: reads})).as_view())
    warned = found()["distlock.W004"]
    assert f"{name}() of" in warned
    assert "Read it in the method that answers" in warned


@pytest.mark.parametrize("name", ["dispatch", "post"])
def test_a_guard_that_would_never_lock_is_found(serve: Serve, name: str) -> None:
    useless = method_decorator(distributed_lock("product_<id>", methods=["PUT"]), name=name)
    serve(useless(sub(Buy)).as_view())
    assert "would never" in found()["distlock.E011"]


class TestAnotherLockInsideTheTransaction:
    """Each of these would answer its first request with an error: the check says so before."""

    @pytest.fixture(autouse=True)
    def aliases(self, settings: Any, atomic_requests: None) -> None:
        settings.DISTLOCK = {alias: {"LOCATION": f"memory://{alias}"} for alias in ("default", "new")}

    def refused(self, serve: Serve, view: Any) -> str:
        serve([path("<int:id>", view)])
        return found().get("distlock.E011", "")

    def test_a_stack_is_right(self, serve: Serve) -> None:
        on_class = method_decorator((lock, lower), name="dispatch")
        for view in (
            lock(lower(sell)),
            lock(lower(sub(Buy))).as_view(),
            on_class(sub(Buy)).as_view(),
        ):
            assert self.refused(serve, view) == ""

    @pytest.mark.parametrize("name", ["between", "methods", "class_and_dispatch", "class_and_post"])
    def test_what_is_none_is_found(self, serve: Serve, name: str) -> None:
        lower_on_dispatch = method_decorator(lower, name="dispatch")
        views: dict[str, Callable[[], Any]] = {
            "between": lambda: lock(require_POST(lower(sell))),
            "methods": lambda: distributed_lock("product_<id>", methods=["POST"])(lower(sell)),
            "class_and_dispatch": lambda: lock(lower_on_dispatch(sub(Buy))).as_view(),
            "class_and_post": lambda: lock(sub(Buy, post=lower(Buy.post))).as_view(),
        }
        refused = self.refused(serve, views[name]())
        assert "inside the transaction that it opens for ATOMIC_REQUESTS" in refused
        assert "write it directly below, with nothing between" in refused

    def test_another_name_of_the_same_alias_belongs_into_the_upper_one(self, serve: Serve) -> None:
        refused = self.refused(serve, lock(distributed_lock("shop_<id>")(sell)))
        assert "Name all locks in the upper one." in refused

    def test_without_the_transaction_of_a_request_nothing_is_wrong(self, serve: Serve) -> None:
        assert self.refused(serve, transaction.non_atomic_requests(lock(require_POST(lower(sell))))) == ""


def sell(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse("sold")
