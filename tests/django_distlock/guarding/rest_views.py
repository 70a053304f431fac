"""Views of REST framework that want a user, and each way to guard them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.utils.decorators import method_decorator
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import (
    action,
    api_view,
    authentication_classes,
    permission_classes,
    throttle_classes,
)
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from distlock.web.guard_options import ALL_BUT_GET, GuardOptions
from django_distlock import distributed_lock, locks
from django_distlock.guarding.views import guard_view

lock = distributed_lock("product_<int:id>")

#: The headers of somebody who may come in.
ALICE = {"x-user": "1"}


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
    return guard_view(view, GuardOptions(["product_<int:id>"]), methods=ALL_BUT_GET)


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
