"""The names of REST framework, django-ninja and asgiref that `private_of_others` leans on."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import redis
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from distlock.web.guard_marks import guards_of
from django_distlock import distributed_lock, private_of_others
from tests.django_distlock import leaning

leaning_on = partial(leaning.leaning_on, file="django_distlock/private_of_others.py")


def view(request: HttpRequest, **kwargs: object) -> HttpResponse:
    return HttpResponse("sold")


def other(request: HttpRequest) -> HttpResponse:
    return HttpResponse("other")


class BuyByApi(APIView):
    authentication_classes = ()

    def post(self, request: Request) -> Response:
        return Response("sold")


# django-redis ----------------------------------------------------------------------------------------------


def test_a_cache_has_the_client_that_writes(settings: Any) -> None:
    for path in ("django.core.cache.backends.redis.RedisCache", "django_redis.cache.RedisCache"):
        settings.CACHES = {"default": {"BACKEND": path, "LOCATION": "redis://127.0.0.1:1"}}
        with leaning_on("_cache.get_client, client.get_client", path):
            assert isinstance(private_of_others.redis_that_writes(caches["default"]), redis.Redis)


# REST framework --------------------------------------------------------------------------------------------

DECORATORS = "api_view of rest_framework/decorators.py"
VIEWS = "APIView of rest_framework/views.py"


def test_what_api_view_made_is_told_from_a_class_of_the_site() -> None:
    made: Any = api_view(["GET", "POST"])(view)
    with leaning_on("WrappedAPIView", DECORATORS):
        assert private_of_others.is_rest(made.cls)
        assert private_of_others.is_api_view(made.cls)
        assert private_of_others.function_of_api_view(made.cls) is view
        assert private_of_others.is_rest(BuyByApi)
        assert not private_of_others.is_api_view(BuyByApi)


def test_the_request_of_the_framework_has_that_of_django() -> None:
    request = HttpRequest()
    with leaning_on("_request", "Request of rest_framework/request.py"):
        assert private_of_others.django_request(Request(request)) is request
        assert private_of_others.django_request(request) is request


def sub(**members: Any) -> Any:
    return type("Sub", (BuyByApi,), members)


def test_a_view_is_prepared_before_its_dispatch() -> None:
    prepared: list[str] = []

    def prepare(view: Any, request: HttpRequest) -> None:
        prepared.append(request.method or "")

    cls = sub()
    with leaning_on("dispatch", VIEWS):
        private_of_others.dispatch_through(cls, prepare)
        private_of_others.dispatch_through(cls, prepare)
        assert cls.as_view()(APIRequestFactory().post("/")).data == "sold"
        assert prepared == ["POST"]


def test_a_view_calls_what_stands_in_the_place_of_its_handler_and_of_its_exception_handler() -> None:
    def prepare(view: Any, request: HttpRequest) -> None:
        def handler(request: Any) -> Response:
            raise ZeroDivisionError

        private_of_others.call_handler_through(view, "post", handler)
        private_of_others.handle_exceptions_by(view, lambda error: Response(type(error).__name__))

    cls = sub()
    with leaning_on("handle_exception", VIEWS):
        private_of_others.dispatch_through(cls, prepare)
        assert cls.as_view()(APIRequestFactory().post("/")).data == "ZeroDivisionError"


# django-ninja ----------------------------------------------------------------------------------------------


def test_an_operation_of_ninja_says_so() -> None:
    site = NinjaAPI(urls_namespace="private", docs_url=None, openapi_url=None)

    def buy(request: HttpRequest) -> str: ...

    with leaning_on("_ninja_operation", "ninja/operation.py"):
        assert private_of_others.is_ninja_operation(site.post("/")(buy))
        assert not private_of_others.is_ninja_operation(view)


def test_ninja_makes_its_answers_of_exceptions_in_one_place() -> None:
    with leaning_on("on_exception", "Operation.run of ninja/operation.py"):
        noted: list[HttpRequest] = []

        class OwnAPI(NinjaAPI): ...

        own = OwnAPI(urls_namespace="noting", docs_url=None, openapi_url=None)

        def on_exception(self: Any, request: HttpRequest, exc: Exception) -> HttpResponse:
            return HttpResponse(status=409)

        def buy(request: HttpRequest) -> None:
            raise ValueError

        OwnAPI.on_exception = on_exception  # type: ignore[method-assign]
        private_of_others.note_ninja_exceptions(noted.append)
        private_of_others.note_ninja_exceptions(noted.append)
        own.post("/buy")(buy)
        request = HttpRequest()
        request.method = "POST"
        [buy_view] = [pattern for pattern in own.urls[0] if str(pattern.pattern) == "buy"]
        assert buy_view.callback(request).status_code == 409
        assert noted == [request]


# asgiref ---------------------------------------------------------------------------------------------------

SYNC = "SyncToAsync.__call__ of asgiref/sync.py"


def test_all_tasks_outside_of_requests_share_one_thread() -> None:
    async def both() -> set[int]:
        return set(await asyncio.gather(*(sync_to_async(threading.get_ident)() for _ in range(3))))

    with leaning_on("single_thread_executor", SYNC):
        assert len(asyncio.run(both())) == 1


def test_a_request_has_a_thread_of_its_own() -> None:
    async def request() -> None:
        assert not private_of_others.has_asgi_thread()
        async with ThreadSensitiveContext():
            assert private_of_others.has_asgi_thread()
            assert private_of_others.request_threads() == []
            works_in = await sync_to_async(threading.get_ident)()
            assert private_of_others.request_threads() == [works_in]

    with leaning_on("thread_sensitive_context, context_to_thread_executor, _threads", SYNC):
        asyncio.run(request())


def test_async_code_inside_of_sync_code_works_in_its_thread() -> None:
    async def inside() -> None:
        assert private_of_others.request_threads() == [await sync_to_async(threading.get_ident)()]

    with leaning_on("AsyncToSync.executors, _work_thread", "asgiref/current_thread_executor.py"):
        async_to_sync(inside)()


def test_what_async_to_sync_makes_says_what_it_awaits() -> None:
    @distributed_lock("product_<int:id>")
    async def buy(id: int) -> None: ...

    with leaning.leaning_on("AsyncToSync.awaitable", "asgiref/sync.py", "distlock/web/guard_marks.py"):
        assert guards_of(async_to_sync(buy)) == guards_of(buy)
        assert len(guards_of(sync_to_async(distributed_lock("product_<id>")(lambda id: None)))) == 1


def test_a_thread_finds_the_coroutine_that_awaits_it() -> None:
    def found() -> list[str]:
        return [frame.f_code.co_name for frame in private_of_others.awaiting_frames()]

    async def awaits() -> list[str]:
        return await sync_to_async(found)()

    async def others() -> list[list[str]]:
        await_one = [asyncio.create_task(awaits()) for _ in range(3)]
        return await asyncio.gather(*await_one)

    with leaning_on("task_context", "asgiref/sync.py, SyncToAsync.thread_handler"):
        for names in asyncio.run(others()):
            assert names == ["__call__", "awaits"]
    assert found() == []
