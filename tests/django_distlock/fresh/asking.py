"""A request that loads its user before it waits for a lock, and what other requests change meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.utils.decorators import sync_and_async_middleware

from django_distlock import distributed_lock
from tests.django_distlock.fresh.bank.models import Customer, Plan, Profile

PAGE = re.MULTILINE | re.DOTALL
BEFORE = f"{__name__}.before_the_lock"

_before: list[Callable[[Any], object]] = []


@sync_and_async_middleware
def before_the_lock(get_response: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            await request.auser()
            await sync_to_async(_before[-1])(request)
            return await get_response(request)

    else:

        def middleware(request: Any) -> Any:
            _before[-1](request)
            return get_response(request)

    return middleware


def new_alice(**fields: Any) -> Customer:
    Customer.objects.all().delete()
    Plan.objects.all().delete()
    alice = Customer.objects.create_user("alice", password="secret", **fields)
    Profile.objects.create(customer=alice, tags=["new"])
    return alice


def others(**fields: Any) -> None:
    """Another request changes the customer's row."""
    Customer.objects.update(**fields)


@contextmanager
def serving(
    view: Any, before: Callable[[Any], object], under: Callable[[Any], Any] | None, **changed: Any
) -> Iterator[None]:
    class Urls:
        urlpatterns = [path("spend", view if under is None else under(view))]

    middleware = [*settings.MIDDLEWARE, BEFORE]
    _before.append(before)
    with override_settings(ROOT_URLCONF=Urls, **{"MIDDLEWARE": middleware, **changed}):
        yield
    _before.pop()


GUARD = distributed_lock("bank")


def ask(
    before: Callable[[Any], object],
    view: Callable[[Any], object],
    under: Callable[[Any], Any] | None = GUARD,
    headers: dict[str, str] | None = None,
    **changed: Any,
) -> int:
    """The status of a request that does *before*, and then *view* under a lock."""

    def answered(request: HttpRequest) -> HttpResponse:
        view(request)
        return HttpResponse("done")

    client = Client()
    backend = changed.get("AUTHENTICATION_BACKENDS", settings.AUTHENTICATION_BACKENDS)[0]
    client.force_login(Customer.objects.get(username="alice"), backend)
    with serving(answered, before, under, **changed):
        return int(client.post("/spend", headers=headers).status_code)


def load(request: Any) -> None:
    assert request.user.pk


def after_loading(change: Callable[[], object]) -> Callable[[Any], None]:
    def before(request: Any) -> None:
        load(request)
        change()

    return before
