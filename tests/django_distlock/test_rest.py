"""Django REST framework: who may not get in neither holds a lock nor waits for one; errors are its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import (
    action,
    api_view,
    authentication_classes,
    permission_classes,
    throttle_classes,
)
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView, exception_handler
from rest_framework.viewsets import ViewSet

from distlock.errors import ConfigurationError, LockTimeout
from distlock.web.decorator import UNSAFE_METHODS, Told
from django_distlock import distributed_lock, locks
from django_distlock.signals import lock_acquired, lock_refused
from django_distlock.views import guard_view

Serve = Callable[..., Client]

lock = distributed_lock("product_<int:id>")


class ByHeader(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, None] | None:
        key = request.headers.get("X-User")
        return (User(pk=int(key)), None) if key else None

    def authenticate_header(self, request: Request) -> str:
        return "Header"


class Never(BaseThrottle):
    def allow_request(self, request: Request, view: object) -> bool:
        return False

    def wait(self) -> float:
        return 7.0


class Policies:
    authentication_classes = [ByHeader]
    permission_classes = [IsAuthenticated]
    throttle_classes: list[Any] = []


class Buy(Policies, APIView):
    def get(self, request: Request, id: int) -> Response:
        return Response(f"{locks.lock('product_1').locked()} {connection.in_atomic_block}")

    def post(self, request: Request, id: int) -> Response:
        return Response(f"{locks.lock('product_1').locked()} {connection.in_atomic_block}")


class Decorated(Buy):
    post = lock(Buy.post)


class Products(Policies, ViewSet):
    lookup_field = "id"

    def update(self, request: Request, id: str) -> Response:
        return Response("updated")

    @action(detail=True, methods=["post"])
    def sell(self, request: Request, id: str) -> Response:
        return Response("sold")


class DecoratedProducts(Products):
    sell = action(detail=True, methods=["post"])(lock(Products.sell))


def api_function(throttles: list[Any]) -> Any:
    @api_view(["POST"])
    @authentication_classes([ByHeader])
    @permission_classes([IsAuthenticated])
    @throttle_classes(throttles)
    def view(request: Request, id: int) -> Response:
        return Response("sold")

    return view


def subclass(cls: type, **policies: Any) -> Any:
    return type(cls.__name__, (cls,), policies)


def by_rule(view: Any) -> Any:
    return guard_view(view, Told(["product_<int:id>"]), methods=UNSAFE_METHODS)


#: Each way to guard a view, given its policies.
VIEWS: dict[str, Callable[..., Any]] = {
    "class": lambda **policies: lock(subclass(Buy, **policies)).as_view(),
    "dispatch": lambda **policies: method_decorator(lock, name="dispatch")(
        subclass(Buy, **policies)
    ).as_view(),
    "as_view": lambda **policies: lock(subclass(Buy, **policies).as_view()),
    "post": lambda **policies: subclass(Decorated, **policies).as_view(),
    "rule": lambda **policies: by_rule(subclass(Buy, **policies).as_view()),
    "api_view": lambda throttle_classes=(): lock(api_function(list(throttle_classes))),
    "rule on api_view": lambda throttle_classes=(): by_rule(api_function(list(throttle_classes))),
    "view set": lambda **policies: lock(subclass(Products, **policies)).as_view({"post": "update"}),
    "action": lambda **policies: subclass(DecoratedProducts, **policies).as_view({"post": "sell"}),
    "rule on action": lambda **policies: by_rule(subclass(Products, **policies).as_view({"post": "sell"})),
}

every_view = pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
ALICE = {"x-user": "1"}


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
    """Whoever waits for a lock waits for longer than a test may last."""
    settings.DISTLOCK = {"default": {"LOCATION": "memory://rest", "TIMEOUT": 600}}


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
    with locks.lock("shelf"):
        assert client.post("/product/1", headers=ALICE).json()["code"] == "lock_contended"


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

    client = serve(guard_view(subclass(Buy).as_view(), Told(["product_<int:id>"]), when=not_for_staff))
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


class Failing(Policies, APIView):
    permission_classes: list[Any] = []

    def post(self, request: Request, id: int) -> Response:
        Group.objects.create(name="sold")
        if id == 1:
            raise ValidationError("sold out")
        raise ZeroDivisionError


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["class", "dispatch", "rule"])
class TestUnderAtomicRequests:
    def make(self, how: str, cls: Any) -> Any:
        if how == "class":
            return lock(subclass(cls)).as_view()
        if how == "dispatch":
            return method_decorator(lock, name="dispatch")(subclass(cls)).as_view()
        return by_rule(cls.as_view())

    def test_what_is_not_locked_is_atomic_as_ever(
        self, serve: Serve, atomic_requests: None, asked: list[str], how: str
    ) -> None:
        client = serve(self.make(how, Buy))
        assert client.get("/product/1", headers=ALICE).json() == "False True"
        assert asked == []
        assert client.post("/product/1", headers=ALICE).json() == "True True"

    def test_an_error_of_the_view_is_rolled_back_and_handled_once(
        self, serve: Serve, atomic_requests: None, how: str
    ) -> None:
        handled: list[bool] = []

        class Noting(Failing):
            def handle_exception(self, error: Exception) -> Any:
                handled.append(locks.lock("product_1").locked() and connection.in_atomic_block)
                return super().handle_exception(error)

        client = serve(self.make(how, Noting))
        assert client.post("/product/1").json() == ["sold out"]
        with pytest.raises(ZeroDivisionError):
            client.post("/product/2")
        assert handled[0] is True
        assert len(handled) == 2
        assert not Group.objects.exists()

    def test_a_lock_that_is_lost_before_commit_is_rolled_back_and_answered(
        self, serve: Serve, atomic_requests: None, how: str
    ) -> None:
        class Losing(Failing):
            def post(self, request: Request, id: int) -> Response:
                Group.objects.create(name="sold")
                locks.close_all()
                return Response("sold")

        response = serve(self.make(how, Losing)).post("/product/1")
        assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
        assert not Group.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["class", "dispatch", "rule"])
def test_in_a_test_case_errors_leave_its_transaction_alone(
    serve: Serve, atomic_requests: None, settings: Any, how: str
) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://rest", "TIMEOUT": 0}}
    Group.objects.create(name="there")
    client = serve(TestUnderAtomicRequests().make(how, Buy))
    assert client.post("/product/1").status_code == 401
    with locks.lock("product_1"):
        assert client.post("/product/1", headers=ALICE).status_code == 423
    assert serve(TestUnderAtomicRequests().make(how, Failing)).post("/product/1").status_code == 400
    assert [group.name for group in Group.objects.all()] == ["there"]
