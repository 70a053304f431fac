"""What surrounds each view: a connection before it, and the instance's name after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import async_only_middleware

Answer = Callable[[HttpRequest], HttpResponse]


class Connect:
    """Open the thread's connection before the guard.

    Otherwise the first buyers of each thread hold the lock while they connect, and an instance that sells so
    slowly hardly meets the other one.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        connection.ensure_connection()
        return self.get_response(request)


class NameInstance:
    """Every answer says which instance gave it."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers["X-Instance"] = settings.SHOP.instance
        return response


@async_only_middleware
def name_instance_async(
    get_response: Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """`NameInstance`, in the event loop."""

    async def answer(request: HttpRequest) -> HttpResponse:
        response = await get_response(request)
        response.headers["X-Instance"] = settings.SHOP.instance
        return response

    return answer
