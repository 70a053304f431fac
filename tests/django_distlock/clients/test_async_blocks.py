"""The end of an ``async with`` in a request waits for the request's work, but not for what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import sync_only_middleware

from django_distlock import distributed_lock, locks
from tests.django_distlock.event_loop import soon, waiting
from tests.django_distlock.watching import asgi

Serve = Callable[..., Client]

#: Seconds, which only a failing test takes.
CEILING = 30


@pytest.fixture(autouse=True)
def patient(settings: Any) -> None:
    # A wait in vain goes on beyond the end of `meet`, with and without a limit.
    settings.DISTLOCK = {"default": {"LOCATION": "memory://blocks", "MAX_WAITERS": 32, "TIMEOUT": 600}}


#: What a holder does once it holds what it will.
Inside = Callable[[], Awaitable[None]]


async def block(inside: Inside) -> None:
    async with locks.lock("product_1"):
        await inside()


async def reentrant_block(inside: Inside) -> None:
    async with locks.rlock("product_1"), locks.rlock("product_1"):
        await inside()


async def several_names(inside: Inside) -> None:
    async with locks.lock("product_0", "product_1"):
        await inside()


async def inner_block(inside: Inside) -> None:
    async with locks.lock("product_1"), locks.lock("product_2"):
        await inside()


async def child(inside: Inside) -> None:
    async def inner() -> None:
        async with locks.lock("product_2"):
            await inside()

    async with locks.lock("product_1"):
        await asyncio.create_task(inner())


async def acquired(inside: Inside) -> None:
    lock = locks.lock("product_1")
    await lock.aacquire()
    await inside()
    await lock.arelease()


async def acquired_around(inside: Inside) -> None:
    lock = locks.lock("product_1")
    await lock.aacquire()
    async with locks.lock("product_2"):
        await inside()
    await lock.arelease()


async def guard_around(inside: Inside) -> None:
    @distributed_lock("product_1")
    async def guarded() -> None:
        async with locks.lock("product_2"):
            await inside()

    await guarded()


async def around_a_guard(inside: Inside) -> None:
    @distributed_lock("product_2")
    async def guarded() -> None:
        await inside()

    async with locks.lock("product_1"):
        await guarded()


async def ended_by_another_task(inside: Inside) -> None:
    @asynccontextmanager
    async def locked() -> AsyncIterator[None]:
        async with locks.lock("product_1"):
            yield

    around = locked()
    await asyncio.create_task(around.__aenter__())
    await inside()
    await asyncio.create_task(around.__aexit__(None, None, None))


HOLDERS = [
    block,
    reentrant_block,
    several_names,
    inner_block,
    child,
    acquired,
    acquired_around,
    guard_around,
    around_a_guard,
    ended_by_another_task,
]


def work() -> str:
    with locks.lock("product_1"):
        return "worked"


def without_limit() -> str:
    with locks.lock("product_1", timeout=-1):
        return "worked"


@distributed_lock("product_1")
def guarded_work() -> str:
    return "worked"


def beside_a_transaction() -> str:
    with locks.lock("product_1", in_transaction=True):
        return "worked"


def by_async_to_sync() -> str:
    async def inner() -> str:
        return await sync_to_async(work)()

    return async_to_sync(inner)()


WORK = [work, without_limit, guarded_work, beside_a_transaction, by_async_to_sync]


@sync_only_middleware
def plain(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    return lambda request: get_response(request)


@pytest.fixture(params=[[], [f"{__name__}.plain"]], ids=["asgi", "sync middleware"])
def meet(request: Any, serve: Serve, settings: Any) -> Callable[..., list[str]]:
    """Serve one request where some work waits in the request's thread for what a holder holds."""
    settings.MIDDLEWARE = request.param

    def meet(holder: Callable[[Inside], Awaitable[None]], work: Callable[[], str]) -> list[str]:
        answers: list[str] = []
        held = asyncio.Event()

        async def inside() -> None:
            held.set()
            await soon(lambda: waiting() == 1)

        async def later() -> str:
            await held.wait()
            return await sync_to_async(work)()

        async def view(request: HttpRequest) -> HttpResponse:
            # Both would wait for ever. To close the client lets them go.
            rescue = asyncio.get_running_loop().call_later(CEILING, locks.close_all)
            answers.append((await asyncio.gather(holder(inside), later()))[1])
            if rescue.when() < asyncio.get_running_loop().time():
                answers.append("rescued")
            rescue.cancel()
            return HttpResponse()

        serve([path("", view)])
        assert asyncio.run(asgi("GET", "/")) == 200
        return answers

    return meet


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("holder", HOLDERS)
def test_the_end_of_a_block_does_not_wait_for_work_that_waits_for_its_lock(
    holder: Callable[[Inside], Awaitable[None]], work: Callable[[], str], meet: Callable[..., list[str]]
) -> None:
    assert meet(holder, work) == ["worked"]
    assert not locks.lock("product_1", "product_2").locked()
