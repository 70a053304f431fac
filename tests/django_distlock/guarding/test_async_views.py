"""Async views through Django's ASGI handler: one at a time, and nothing stays behind when a client goes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client
from django.views import View

from distlock.errors import ConfigurationError, LockTimeout
from distlock.grants.current import current_grant
from distlock.web.guard_options import GuardOptions
from django_distlock import distributed_lock, locks
from django_distlock.guarding.views import guard_view
from tests.django_distlock.event_loop import Counter, held_by_somebody_else, soon, waiting
from tests.django_distlock.watching import asgi, leaving
from tests.redis_server import eventually

Serve = Callable[..., Client]

lock = distributed_lock("product_<id>")


@pytest.fixture(autouse=True)
def patient(settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://async", "MAX_WAITERS": 32, "TIMEOUT": 60}}


async def together(number: int) -> list[int]:
    return await asyncio.gather(*(asgi("POST", "/product/1") for _ in range(number)))


def test_it_is_an_async_view_itself() -> None:
    assert iscoroutinefunction(lock(Counter().view))


@pytest.mark.parametrize("guard", [lock, lambda view: guard_view(view, GuardOptions(["product_<id>"]))])
def test_requests_of_one_event_loop_exclude_one_another(serve: Serve, guard: Callable[..., Any]) -> None:
    guarded, control = Counter(), Counter()
    serve(guard(guarded.view))
    assert asyncio.run(together(20)) == [200] * 20
    serve(control.view)
    asyncio.run(together(20))
    assert (guarded.served, guarded.most) == (20, 1)
    assert control.most > 1


def test_sync_views_under_asgi_exclude_one_another(serve: Serve) -> None:
    counter = Counter()

    def view(request: HttpRequest, id: int) -> HttpResponse:
        counter.enter()
        counter.leave()
        return HttpResponse()

    serve(lock(view))
    assert asyncio.run(together(20)) == [200] * 20
    assert (counter.served, counter.most) == (20, 1)


def test_a_request_that_does_not_get_the_lock_is_answered(serve: Serve) -> None:
    serve(distributed_lock("product_<id>", timeout=0)(Counter().view))
    with held_by_somebody_else():
        assert asyncio.run(asgi("POST", "/product/1")) == 423
    assert asyncio.run(asgi("POST", "/product/1")) == 200


@pytest.mark.attack("A22")
@pytest.mark.fault("F38")
def test_a_client_that_goes_while_it_waits_leaves_the_queue(serve: Serve) -> None:
    serve(distributed_lock("product_<id>", timeout=600)(Counter().view))

    async def go_away() -> int:
        gone = asyncio.Event()
        request = asyncio.create_task(asgi("POST", "/product/1", gone))
        await soon(lambda: waiting() == 1)
        gone.set()
        return await asyncio.wait_for(request, 10)

    with held_by_somebody_else():
        assert asyncio.run(go_away()) == 0
        assert waiting() == 0
    assert not locks.lock("product_1").locked()


def test_a_client_that_goes_while_its_view_runs_gives_the_lock_back(serve: Serve) -> None:
    inside: list[str] = []

    @distributed_lock("product_<id>", timeout=600)
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        inside.append(current_grant().names[0])
        await asyncio.Event().wait()
        return HttpResponse()

    serve(view)

    async def go_away() -> None:
        gone = asyncio.Event()
        first = asyncio.create_task(asgi("POST", "/product/1", gone))
        await soon(lambda: len(inside) == 1)
        second = asyncio.create_task(asgi("POST", "/product/1", gone_too := asyncio.Event()))
        await soon(lambda: waiting() == 1)
        gone.set()
        await asyncio.wait_for(first, 10)
        # The lock goes on to the next one at once.
        await soon(lambda: len(inside) == 2)
        gone_too.set()
        await asyncio.wait_for(second, 10)

    asyncio.run(go_away())
    assert waiting() == 0
    assert not locks.lock("product_1").locked()


@pytest.mark.parametrize("ends", ["client goes", "time-out"])
def test_what_a_thread_still_does_for_the_view_is_done_under_the_lock(serve: Serve, ends: str) -> None:
    begun, finish = threading.Event(), threading.Event()
    held: list[bool] = []

    def work() -> None:
        begun.set()
        assert finish.wait(30)
        held.append(locks.lock("product_1").locked())

    @lock
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        working = asyncio.create_task(sync_to_async(work)())
        if ends == "time-out":
            await soon(begun.is_set)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(working, 0)
        await working
        return HttpResponse()

    serve(view)
    leaving("/product/1", begun, finish)
    assert held == [True]
    assert not locks.lock("product_1").locked()


def test_a_sync_view_goes_on_without_its_client_and_then_gives_the_lock_back(serve: Serve) -> None:
    inside, finish = threading.Event(), threading.Event()

    @lock
    def view(request: HttpRequest, id: int) -> HttpResponse:
        inside.set()
        assert finish.wait(30)
        return HttpResponse()

    serve(view)

    async def go_away() -> None:
        gone = asyncio.Event()
        request = asyncio.create_task(asgi("POST", "/product/1", gone))
        await soon(inside.is_set)
        gone.set()
        assert locks.lock("product_1").locked()
        finish.set()
        await asyncio.wait_for(request, 10)

    asyncio.run(go_away())
    eventually(lambda: not locks.lock("product_1").locked(), "the lock is given back")


def test_a_guard_inside_a_guard_on_one_name_enters_at_once(serve: Serve) -> None:
    same: list[bool] = []

    @distributed_lock("product_<id>", timeout=0)
    async def sell(id: int) -> None:
        same.append(current_grant() is outer[0])

    outer: list[Any] = []

    @lock
    class Buy(View):
        async def post(self, request: HttpRequest, id: int) -> HttpResponse:
            outer.append(current_grant())
            await sell(1)
            return HttpResponse()

    serve(Buy.as_view())
    assert asyncio.run(asgi("POST", "/product/1")) == 200
    assert same == [True]


@pytest.mark.django_db(transaction=True)
def test_an_async_view_commits_its_own_transactions_under_the_lock(serve: Serve) -> None:
    @transaction.atomic
    def save() -> str:
        User.objects.create(username="alice")
        return "product_1"

    @lock
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        name = await sync_to_async(save)()
        return HttpResponse(str(await sync_to_async(locks.lock(name).locked)()))

    assert serve(view).post("/product/1").content == b"True"
    assert User.objects.count() == 1


def test_methods_and_predicates_count_for_async_views(serve: Serve) -> None:
    def never(request: HttpRequest, id: int) -> bool:
        return request.method == "PUT"

    told = GuardOptions(["product_<id>"], methods=["POST", "PUT"], timeout=0)
    serve(guard_view(Counter().view, told, when=never))
    with held_by_somebody_else():
        answers = [asyncio.run(asgi(method, "/product/1")) for method in ("GET", "POST", "PUT")]
    assert answers == [200, 200, 423]


def test_a_streaming_response_is_warned_about(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def content() -> Any:
        yield b"sold"

    @lock
    async def view(request: HttpRequest, id: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(content())

    serve(view)
    with caplog.at_level(logging.WARNING, "distlock"):
        assert asyncio.run(asgi("POST", "/product/1")) == 200
    assert "after the lock is released" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_the_work_of_a_block_goes_on_under_its_lock_when_the_client_has_gone(serve: Serve) -> None:
    begun, go, held = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert go.wait(30)
        held.append(locks.lock("product_1").locked())

    async def view(request: HttpRequest, id: int) -> HttpResponse:
        async with locks.lock(f"product_{id}"):
            await sync_to_async(work)()
        return HttpResponse("sold")

    serve(view)
    leaving("/product/1", begun, go)
    assert held == [True]
    assert not locks.lock("product_1").locked()


def test_a_guard_in_a_thread_finds_the_lock_taken_where_a_sites_test_holds_it() -> None:
    @distributed_lock("product_<id>", timeout=0.05)
    def sell(id: int) -> None:
        pytest.fail("ran")

    @distributed_lock("product_<id>", timeout=0, on_contended="skip")
    def skip(id: int) -> None:
        pytest.fail("ran")

    async def main() -> None:
        async with locks.lock("product_1"):
            with pytest.raises(LockTimeout):
                await sync_to_async(sell)(1)
            assert await sync_to_async(skip)(1) is None

    asyncio.run(main())


def test_a_function_in_a_thread_that_takes_the_views_own_lock_gets_an_error_at_once(serve: Serve) -> None:
    @distributed_lock("product_<id>")
    def sell(id: int) -> None:
        pytest.fail("ran")

    def block() -> None:
        locks.lock("product_1").__enter__()

    @lock
    async def view(request: HttpRequest, id: int) -> HttpResponse:
        for work in (lambda: sell(1), block):
            with pytest.raises(ConfigurationError, match="awaits this very thread"):
                await sync_to_async(work)()
        return HttpResponse()

    serve(view)
    assert asyncio.run(asgi("POST", "/product/1")) == 200
