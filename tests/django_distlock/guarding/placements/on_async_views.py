from __future__ import annotations

from typing import Any

from asgiref.sync import markcoroutinefunction
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from tests.django_distlock.guarding.placements.table import LOCKED, lock, placement, rule
from tests.django_distlock.watching import Events

NON_ATOMIC = r"Write @transaction\.non_atomic_requests above it"
NON_ATOMIC_CLASS = (
    r'Write @method_decorator\(transaction\.non_atomic_requests, name="dispatch"\) above the class'
)
DJANGO = "You cannot use ATOMIC_REQUESTS with async views"


def async_function(events: Events) -> Any:
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        return await events.asell()

    return view


@placement(atomic=NON_ATOMIC)
def on_an_async_function(events: Events) -> Any:
    return lock(events)(async_function(events))


@placement(atomic=NON_ATOMIC)
def by_a_rule_on_an_async_function(events: Events) -> Any:
    return rule(events, async_function(events))


@placement(atomic=LOCKED)
def on_an_async_function_below_non_atomic_requests(events: Events) -> Any:
    return transaction.non_atomic_requests(lock(events)(async_function(events)))


@placement(atomic=LOCKED)
def on_an_async_function_above_non_atomic_requests(events: Events) -> Any:
    return lock(events)(transaction.non_atomic_requests(async_function(events)))


@placement(atomic=NON_ATOMIC)
def on_an_async_function_between_others(events: Events) -> Any:
    return never_cache(lock(events)(csrf_exempt(async_function(events))))


@placement(atomic=NON_ATOMIC)
def on_an_object_that_is_an_async_view(events: Events) -> Any:
    class Buy:
        def __init__(self) -> None:
            markcoroutinefunction(self)

        async def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
            return await events.asell()

    return lock(events)(Buy())


@placement(autocommit="directly above the 'async def'", atomic="directly above the 'async def'")
def on_an_async_function_that_hides(events: Events) -> Any:
    inner = async_function(events)
    return lock(events)(lambda request, id: inner(request, id))


def async_buy(events: Events) -> type[View]:
    class Buy(View):
        async def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return await events.asell()

    return Buy


@placement(atomic=NON_ATOMIC_CLASS)
def on_an_async_class(events: Events) -> Any:
    return lock(events)(async_buy(events)).as_view()


@placement(atomic=LOCKED)
def on_an_async_class_below_non_atomic_requests(events: Events) -> Any:
    locked = lock(events)(async_buy(events))
    return method_decorator(transaction.non_atomic_requests, name="dispatch")(locked).as_view()


@placement(atomic=NON_ATOMIC_CLASS)
def around_as_view_of_an_async_class(events: Events) -> Any:
    return lock(events)(async_buy(events).as_view())


@placement(atomic=NON_ATOMIC_CLASS)
def on_the_dispatch_of_an_async_class(events: Events) -> Any:
    class Buy(async_buy(events)):
        @lock(events)
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    return Buy.as_view()


@placement(atomic=NON_ATOMIC_CLASS)
def on_the_dispatch_of_an_async_class_by_name(events: Events) -> Any:
    return method_decorator(lock(events), name="dispatch")(async_buy(events)).as_view()


@placement(atomic=NON_ATOMIC_CLASS)
def on_an_async_dispatch(events: Events) -> Any:
    class Buy(async_buy(events)):
        @lock(events)
        async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return await super().dispatch(request, *args, **kwargs)

    return Buy.as_view()


@placement(atomic=DJANGO)
def on_an_async_post(events: Events) -> Any:
    class Buy(View):
        @lock(events)
        async def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return await events.asell()

    return Buy.as_view()


@placement(atomic=DJANGO)
def on_an_async_post_by_name(events: Events) -> Any:
    return method_decorator(lock(events), name="post")(async_buy(events)).as_view()
