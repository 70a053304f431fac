from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import cache_page, never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from tests.django_distlock.guarding.placements.table import ATOMIC, LOCKED, lock, placement, rule
from tests.django_distlock.watching import Events


def function(events: Events) -> Callable[..., HttpResponse]:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return events.sell()

    return view


@placement()
def on_a_function(events: Events) -> Any:
    return lock(events)(function(events))


@placement()
def by_a_rule_on_a_function(events: Events) -> Any:
    return rule(events, function(events))


@placement()
def below_csrf_exempt_and_require_post(events: Events) -> Any:
    return csrf_exempt(require_POST(lock(events)(function(events))))


@placement()
def above_csrf_exempt_and_require_post(events: Events) -> Any:
    return lock(events)(csrf_exempt(require_POST(function(events))))


@placement()
def below_cache_page_and_never_cache(events: Events) -> Any:
    return cache_page(60)(never_cache(lock(events)(function(events))))


@placement()
def above_cache_page_and_never_cache(events: Events) -> Any:
    return lock(events)(cache_page(60)(never_cache(function(events))))


@placement(autocommit=ATOMIC)
def above_transaction_atomic(events: Events) -> Any:
    return lock(events)(transaction.atomic(function(events)))


@placement(
    autocommit=r"Write @distributed_lock above whatever opens it, transaction\.atomic",
    atomic=r"Write @distributed_lock above whatever opens it, transaction\.atomic",
)
def below_transaction_atomic(events: Events) -> Any:
    return transaction.atomic(lock(events)(function(events)))


@placement(atomic=LOCKED)
def below_non_atomic_requests(events: Events) -> Any:
    return transaction.non_atomic_requests(lock(events)(function(events)))


@placement(atomic=r"need functools\.wraps")
def below_a_decorator_without_wraps(events: Events) -> Any:
    inner = lock(events)(function(events))
    return lambda request, id: inner(request, id)


@placement()
def on_a_partial(events: Events) -> Any:
    def view(request: HttpRequest, shop: str, id: int) -> HttpResponse:
        return events.sell()

    return lock(events)(functools.partial(view, shop="berlin"))


@placement(atomic=r"need functools\.wraps")
def inside_a_partial(events: Events) -> Any:
    def view(request: HttpRequest, id: int) -> HttpResponse:
        return events.sell()

    return functools.partial(lock(events)(view))


@placement()
def below_staticmethod(events: Events) -> Any:
    class Shop:
        @staticmethod
        @lock(events)
        def view(request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Shop.view


@placement()
def below_classmethod(events: Events) -> Any:
    class Shop:
        @classmethod
        @lock(events)
        def view(cls, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Shop.view


@placement()
def on_a_method_of_a_site(events: Events) -> Any:
    class Site:
        @lock(events)
        def view(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Site().view


@placement()
def on_an_object_that_is_a_view(events: Events) -> Any:
    class Buy:
        def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return lock(events)(Buy())
