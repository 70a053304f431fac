"""Middleware that opens the connection, names the instance, and notes moments outside of the view."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import async_only_middleware

from demo_shop.sale import PURCHASE_HEADER, begin_purchase, reach
from django_distlock.signals import lock_acquired, lock_released

GetResponse = Callable[[HttpRequest], HttpResponse]


class ConnectionMiddleware:
    """Middleware that opens the thread's connection to the database before the guard.

    Without it, the first buyer of each thread would hold the lock while the thread connects, and the
    instances would sell so slowly that they hardly race.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        connection.ensure_connection()
        return self.get_response(request)


class InstanceNameMiddleware:
    """Middleware that writes the instance's name into each response."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers["X-Instance"] = settings.SHOP.instance
        return response


@async_only_middleware
def name_instance_async(
    get_response: Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Write the instance's name into each response, as `InstanceNameMiddleware`, in the event loop."""

    async def answer(request: HttpRequest) -> HttpResponse:
        response = await get_response(request)
        response.headers["X-Instance"] = settings.SHOP.instance
        return response

    return answer


class Journal:
    """Middleware that notes a purchase's name, when its lock is granted and released, and its answer."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        lock_acquired.connect(self.granted)
        lock_released.connect(self.released)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Set an empty name, too: otherwise the thread would keep the name of its last request.
        begin_purchase(request.headers.get(PURCHASE_HEADER, ""))
        response = self.get_response(request)
        if PURCHASE_HEADER not in request.headers:
            return response
        code = json.loads(response.content).get("code")
        reach(settings.SHOP, "answered", status=response.status_code, code=code)
        return response

    def granted(self, **_: object) -> None:
        reach(settings.SHOP, "granted")

    def released(self, **_: object) -> None:
        reach(settings.SHOP, "released")
