"""Django REST framework: a refused user neither holds a lock nor waits for one; errors are its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView, exception_handler

from distlock.errors import ConfigurationError, LockTimeout
from distlock.web.guard_options import GuardOptions
from django_distlock import distributed_lock, locks
from django_distlock.checks.guards import check_names
from django_distlock.guarding.views import guard_view
from django_distlock.signals import lock_acquired, lock_refused
from tests.django_distlock.guarding.rest_views import ALICE, VIEWS, Buy, Never, Products, lock, subclass

Serve = Callable[..., Client]

every_view = pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """How each lock that guards asked for was answered."""
    asked: list[str] = []

    def granted(**kwargs: Any) -> None:
        asked.append("granted")

    def refused(**kwargs: Any) -> None:
        asked.append("refused")

    lock_acquired.connect(granted)
    lock_refused.connect(refused)
    yield asked
    lock_acquired.disconnect(granted)
    lock_refused.disconnect(refused)


@pytest.fixture(autouse=True)
def patient(settings: Any) -> None:
    """A request that waits for a lock does so for longer than a test may last."""
    settings.DISTLOCK = {"default": {"LOCATION": "memory://rest", "TIMEOUT": 600}}


@pytest.mark.attack("A20")
@every_view
def test_an_anonymous_caller_neither_holds_nor_awaits_a_lock(
    serve: Serve, make: Callable[..., Any], asked: list[str]
) -> None:
    client = serve(make())
    with locks.lock("product_1"):
        assert client.post("/product/1").status_code == 401
    assert client.post("/product/1").status_code == 401
    assert asked == []
    assert client.post("/product/1", headers=ALICE).status_code == 200
    assert asked == ["granted"]


@pytest.mark.attack("A20")
@every_view
def test_a_throttled_caller_neither_holds_nor_awaits_a_lock(
    serve: Serve, make: Callable[..., Any], asked: list[str]
) -> None:
    client = serve(make(throttle_classes=[Never]))
    with locks.lock("product_1"):
        response = client.post("/product/1", headers=ALICE)
    assert (response.status_code, response["Retry-After"]) == (429, "7")
    assert asked == []


@every_view
def test_whoever_does_not_get_the_lock_gets_an_error_of_the_framework(
    serve: Serve, make: Callable[..., Any], settings: Any
) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://rest", "TIMEOUT": 0}}
    client = serve(make())
    with locks.lock("product_1"):
        response = client.post("/product/1", headers=ALICE)
    assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (
        423,
        "1",
        "no-store",
    )
    assert response["Content-Type"] == "application/json"
    assert (response.json()["code"], response.json()["retry_after"]) == ("lock_contended", 1)
    assert "product_1" not in response.content.decode()


@every_view
def test_another_spelling_is_a_400(serve: Serve, make: Callable[..., Any]) -> None:
    response = serve(make(), "product/<str:id>").post("/product/01", headers=ALICE)
    assert (response.status_code, response.json()["code"]) == (400, "lock_name_invalid")
    assert "Retry-After" not in response


def test_the_sites_own_handler_sees_the_error(serve: Serve) -> None:
    def handler(error: Any, context: Any) -> Response:
        response = exception_handler(error, context)
        response.data = {
            "error": error.get_codes(),
            "full": error.get_full_details()["code"],
            "why": str(error),
        }
        return response

    class Impatient(Buy):
        def get_exception_handler(self) -> Any:
            return handler

    client = serve(distributed_lock("product_<int:id>", timeout=0)(Impatient).as_view())
    with locks.lock("product_1"):
        response = client.post("/product/1", headers=ALICE)
    assert response.status_code == 423
    assert response.json()["error"] == response.json()["full"] == "lock_contended"
    assert response.json()["why"].startswith("lock_contended: Somebody else")


def test_the_browsable_api_shows_it(serve: Serve, settings: Any) -> None:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "rest_framework", "django.contrib.staticfiles"]
    settings.STATIC_URL = "static/"
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
    client = serve(distributed_lock("product_<int:id>", timeout=0)(subclass(Buy)).as_view())
    with locks.lock("product_1"):
        response = client.post("/product/1", headers={**ALICE, "accept": "text/html"})
    assert response.status_code == 423
    assert "lock_contended" in response.content.decode()


def test_a_view_that_wants_the_error_gets_it(serve: Serve) -> None:
    view = distributed_lock("product_<int:id>", timeout=0, on_contended="raise")(subclass(Buy)).as_view()
    client = serve(view)
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        client.post("/product/1", headers=ALICE)


def test_a_lock_error_from_inside_the_view_is_answered_alike(serve: Serve) -> None:
    class Two(Buy):
        def post(self, request: Request, id: int) -> Response:
            with locks.lock("shelf", timeout=0):
                return Response()

    client = serve(lock(Two).as_view())
    grant = locks.lock("shelf").acquire()
    assert grant is not None
    assert client.post("/product/1", headers=ALICE).json()["code"] == "lock_contended"
    grant.release()


def test_names_may_take_the_user_that_the_framework_found(serve: Serve) -> None:
    class Mine(Buy):
        permission_classes = []

        def post(self, request: Request, id: int) -> Response:
            return Response(locks.lock("cart_7").locked())

    client = serve(distributed_lock("cart_<user.pk>")(Mine).as_view())
    assert client.post("/product/1", headers={"x-user": "7"}).json() is True
    assert client.post("/product/1").status_code == 401


def test_a_predicate_sees_the_user_that_the_framework_found(serve: Serve, asked: list[str]) -> None:
    def not_for_staff(request: Request, id: int) -> bool:
        return request.user.pk != 1

    options = GuardOptions(["product_<int:id>"])
    client = serve(guard_view(subclass(Buy).as_view(), options, when=not_for_staff))
    assert client.post("/product/1", headers=ALICE).status_code == 200
    assert asked == []
    assert client.post("/product/1", headers={"x-user": "2"}).status_code == 200
    assert asked == ["granted"]


def test_all_that_a_router_routes_is_guarded_by_the_class(serve: Serve, asked: list[str]) -> None:
    router = SimpleRouter(trailing_slash=False)
    router.register("product", lock(subclass(Products)), basename="product")
    client = serve([path("", include(router.urls))])
    assert client.put("/product/1", headers=ALICE).json() == "updated"
    assert client.post("/product/1/sell", headers=ALICE).json() == "sold"
    assert asked == ["granted", "granted"]


def test_a_class_and_its_base_stay_as_they_are(serve: Serve, asked: list[str]) -> None:
    base = subclass(Buy)
    guarded = lock(subclass(base)).as_view()
    assert (guarded.cls.__mro__[1], guarded.csrf_exempt, guarded.login_required) == (base, True, False)
    serve(base.as_view()).post("/product/1", headers=ALICE)
    assert asked == []


def test_an_async_view_is_refused_with_what_to_write() -> None:
    class Later(APIView):
        async def post(self, request: Request, id: int) -> Response: ...

    with pytest.raises(ConfigurationError, match=r"async view of REST framework.*async with locks\.lock"):
        lock(Later).as_view()


@pytest.mark.parametrize("name", ["post", "dispatch"])
def test_so_are_async_methods_that_nobody_awaits(serve: Serve, name: str) -> None:
    @method_decorator(distributed_lock("product_<id>"), name=name)
    class Later(APIView):
        async def post(self, request: Request, id: int) -> Response: ...

    client = serve(Later.as_view())
    assert [message.id for message in run_checks() if "Later is an async view" in message.msg] == [
        "distlock.E011"
    ]
    if name == "dispatch":
        with pytest.raises(ConfigurationError, match="Later is an async view of REST framework"):
            client.post("/product/1")


class Webhook(APIView):
    """Answers in a dispatch() of its own: no permissions are asked for, and no handler is called."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("paid")


@pytest.mark.parametrize(
    "decorate",
    [
        lambda: lock(type("Hook", (Webhook,), {})).as_view(),
        lambda: lock(Webhook.as_view()),
        lambda: guard_view(Webhook.as_view(), GuardOptions(["product_<int:id>"])),
    ],
    ids=["class", "as_view", "rule"],
)
def test_a_dispatch_that_passes_rest_framework_by_is_refused(decorate: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"Webhook has a dispatch\(\) .* super\(\)\.dispatch\(\)"):
        decorate()


def test_a_guard_on_such_a_dispatch_is_refused_by_the_check_and_by_the_first_request(serve: Serve) -> None:
    view = method_decorator(lock, name="dispatch")(type("Hook", (Webhook,), {})).as_view()
    client = serve(view)
    (found,) = check_names()
    assert (found.id, "does not call that of REST framework" in found.msg) == ("distlock.E011", True)
    with pytest.raises(ConfigurationError, match="does not call that of REST framework"):
        client.post("/product/1")


def test_a_dispatch_of_ones_own_that_goes_on_is_locked(serve: Serve, asked: list[str]) -> None:
    class Counted(APIView):
        authentication_classes = ()

        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            def go_on() -> Any:
                return super(Counted, self).dispatch(request, *args, **kwargs)

            return go_on()

        def post(self, request: Request, id: int) -> Response:
            return Response("sold")

    assert serve(lock(Counted).as_view()).post("/product/1").data == "sold"
    assert asked == ["granted"]


def test_a_view_that_passes_another_request_on_reads_its_body(serve: Serve) -> None:
    class Copying(APIView):
        authentication_classes = ()
        permission_classes = ()

        def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
            return super().initialize_request(copy.copy(request), *args, **kwargs)

        def post(self, request: Request, id: int) -> Response:
            return Response(request.data)

    client = serve(distributed_lock("product_<int:id>")(Copying).as_view())
    response = client.post("/product/1", {"count": 7}, content_type="application/json")
    assert (response.status_code, response.json()) == (200, {"count": 7})
