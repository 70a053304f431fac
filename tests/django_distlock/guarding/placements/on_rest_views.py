"""Django REST framework: the lock comes after authentication and permissions, and before BEGIN."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.urls import include
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes, permission_classes
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from tests.django_distlock.guarding.placements.table import ATOMIC, LOCKED, lock, placement, rule
from tests.django_distlock.watching import Events

REST_LOCKED = ["user", "permission", *LOCKED]
REST_ATOMIC = ["user", "permission", *ATOMIC]

#: The transaction is open before the method is called.
CLASS_LINE = r"Write @distributed_lock\((?!.*methods=).*\) above the class Buy\."
RULE_LINE = r"DISTLOCK_RULES = \[\{\"route\": 'buy-sell', \"lock\": …"


def rest_placement(autocommit: list[str] | str = REST_LOCKED, atomic: list[str] | str = REST_ATOMIC) -> Any:
    return placement(autocommit, atomic)


def policies(events: Events) -> tuple[list[Any], list[Any]]:
    class Anybody(BaseAuthentication):
        def authenticate(self, request: Request) -> None:
            events.append("user")

    class Allowed(BasePermission):
        def has_permission(self, request: Request, view: object) -> bool:
            events.append("permission")
            return True

    return [Anybody], [Allowed]


def sold(events: Events) -> Response:
    events.view()
    return Response("sold")


def base(events: Events) -> type[APIView]:
    class Base(APIView):
        authentication_classes, permission_classes = policies(events)

    return Base


def buy(events: Events) -> type[APIView]:
    class Buy(base(events)):
        def post(self, request: Request, id: int) -> Response:
            return sold(events)

    return Buy


@rest_placement()
def on_an_api_class(events: Events) -> Any:
    return lock(events)(buy(events)).as_view()


@rest_placement(REST_LOCKED, REST_LOCKED)
def on_an_api_class_below_non_atomic_requests(events: Events) -> Any:
    locked = lock(events)(buy(events))
    return method_decorator(transaction.non_atomic_requests, name="dispatch")(locked).as_view()


@rest_placement()
def on_the_base_of_an_api_class_that_permits_by_itself(events: Events) -> Any:
    class Sub(lock(events)(buy(events))):
        def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
            super().initial(request, *args, **kwargs)
            assert "lock" not in events

    return Sub.as_view()


@rest_placement()
def around_as_view_of_an_api_class(events: Events) -> Any:
    return lock(events)(buy(events).as_view())


@rest_placement()
def around_decorated_as_view_of_an_api_class(events: Events) -> Any:
    return lock(events)(never_cache(buy(events).as_view()))


@rest_placement()
def by_a_rule_on_an_api_class(events: Events) -> Any:
    return rule(events, buy(events).as_view())


@rest_placement()
def by_a_rule_on_a_decorated_api_class(events: Events) -> Any:
    inner = lock(Events())(buy(events))
    return rule(events, inner.as_view())


@rest_placement()
def on_the_dispatch_of_an_api_class(events: Events) -> Any:
    class Buy(buy(events)):
        @lock(events)
        def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    return Buy.as_view()


@rest_placement()
def on_the_dispatch_of_an_api_class_by_name(events: Events) -> Any:
    return method_decorator([never_cache, lock(events)], name="dispatch")(buy(events)).as_view()


@rest_placement(atomic=CLASS_LINE)
def on_the_post_of_an_api_class(events: Events) -> Any:
    class Buy(base(events)):
        @lock(events)
        def post(self, request: Request, id: int) -> Response:
            return sold(events)

    return Buy.as_view()


@rest_placement(atomic=CLASS_LINE)
def on_the_post_of_an_api_class_by_name(events: Events) -> Any:
    return method_decorator(lock(events), name="post")(buy(events)).as_view()


@rest_placement("above the class Buy", "above the class Buy")
def on_initial(events: Events) -> Any:
    class Buy(buy(events)):
        @lock(events)
        def initial(self, request: Request, id: int) -> None:
            super().initial(request, id=id)

    return Buy.as_view()


def api_function(events: Events) -> Any:
    users, permissions = policies(events)

    @api_view(["POST"])
    @authentication_classes(users)
    @permission_classes(permissions)
    def view(request: Request, id: int) -> Response:
        return sold(events)

    return view


@rest_placement()
def above_api_view(events: Events) -> Any:
    return lock(events)(api_function(events))


@rest_placement()
def by_a_rule_above_api_view(events: Events) -> Any:
    return rule(events, api_function(events))


@rest_placement("below @api_view on .*: write it above", "below @api_view on .*: write it above")
def below_api_view(events: Events) -> Any:
    @api_view(["POST"])
    @lock(events)
    def view(request: Request, id: int) -> Response:
        return sold(events)

    return view


def routed(viewset: type[ViewSet]) -> Any:
    router = SimpleRouter(trailing_slash=False)
    router.register("product", viewset, basename="buy")
    return include(router.urls)


def sells(events: Events) -> type[ViewSet]:
    class Buy(ViewSet):
        authentication_classes, permission_classes = policies(events)
        lookup_field = "id"

        @action(detail=True, methods=["post"])
        def sell(self, request: Request, id: str) -> Response:
            return sold(events)

    return Buy


@rest_placement()
def on_a_view_set(events: Events) -> Any:
    return routed(lock(events)(sells(events)))


@rest_placement()
def around_as_view_of_a_view_set(events: Events) -> Any:
    return lock(events)(sells(events).as_view({"post": "sell"}))


@rest_placement()
def by_a_rule_on_a_view_set(events: Events) -> Any:
    return rule(events, sells(events).as_view({"post": "sell"}))


@rest_placement()
def on_the_dispatch_of_a_view_set(events: Events) -> Any:
    return routed(method_decorator(lock(events), name="dispatch")(sells(events)))


@rest_placement(atomic=RULE_LINE)
def below_action(events: Events) -> Any:
    class Buy(sells(events)):
        @action(detail=True, methods=["post"])
        @lock(events)
        def sell(self, request: Request, id: str) -> Response:
            return sold(events)

    return routed(Buy)


@rest_placement(atomic=RULE_LINE)
def above_action(events: Events) -> Any:
    class Buy(sells(events)):
        @lock(events)
        @action(detail=True, methods=["post"])
        def sell(self, request: Request, id: str) -> Response:
            return sold(events)

    return routed(Buy)


@rest_placement(atomic=RULE_LINE)
def below_action_by_method_decorator(events: Events) -> Any:
    class Buy(sells(events)):
        @action(detail=True, methods=["post"])
        @method_decorator(lock(events))
        def sell(self, request: Request, id: str) -> Response:
            return sold(events)

    return routed(Buy)
