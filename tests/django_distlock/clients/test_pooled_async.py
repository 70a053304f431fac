"""Async code that waits for a lock gives back the pooled connections of the thread of its database work."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock.errors import LockTimeout
from django_distlock import distributed_lock, locks
from tests.django_distlock.clients.pool import ALIAS, database, pool, read
from tests.django_distlock.event_loop import held_by_somebody_else, soon, waiting
from tests.django_distlock.watching import asgi

__all__ = ["database", "pool"]

CALLERS = 12

_numbers = itertools.count()

pytestmark = pytest.mark.usefixtures("pool")


@pytest.fixture(autouse=True)
def service(settings: Any) -> None:
    location = f"memory://async-pool{next(_numbers)}"
    settings.DISTLOCK = {"default": {"LOCATION": location, "TIMEOUT": 60, "MAX_WAITERS": 64}}


def read_and_close() -> None:
    # Without the signals of a server nobody closes it at the end of the request.
    read()
    connections[ALIAS].close()


@distributed_lock("product_<id>")
async def guarded(request: HttpRequest, id: int) -> HttpResponse:
    await sync_to_async(read_and_close)()
    return HttpResponse()


@distributed_lock("product_<id>")
def sync_view(request: HttpRequest, id: int) -> HttpResponse:
    read_and_close()
    return HttpResponse()


async def with_block(request: HttpRequest, id: int) -> HttpResponse:
    async with locks.lock(f"product_{id}"):
        await sync_to_async(read_and_close)()
    return HttpResponse()


async def reading_with_block(request: HttpRequest, id: int) -> HttpResponse:
    if "session" in request.GET:
        await sync_to_async(read)()
    return await with_block(request, id)


@pytest.mark.fault("F34")
@pytest.mark.parametrize("behind_middleware", [True, False], ids=["read by a middleware", "read by the view"])
@pytest.mark.parametrize("view", [guarded, sync_view, with_block, reading_with_block])
def test_async_waiters_leave_the_connections_to_who_holds_the_lock(
    pool: Any, serve: Callable[..., Client], settings: Any, view: Any, behind_middleware: bool
) -> None:
    if not behind_middleware:
        settings.MIDDLEWARE = []
    serve(view)

    async def rush() -> list[int]:
        with held_by_somebody_else() as go:
            # The first has no connection yet, and those behind it have used theirs.
            first = asyncio.create_task(asgi("POST", "/product/1"))
            await soon(lambda: waiting() == 1)
            others = [asyncio.create_task(asgi("POST", "/product/1?session=1")) for _ in range(CALLERS)]
            await soon(lambda: waiting() == CALLERS + 1 or pool.get_stats().get("requests_waiting", 0))
            go.set()
            return await asyncio.gather(first, *others)

    assert asyncio.run(rush()) == [200] * (CALLERS + 1)


def kept_over_a_wait() -> bool:
    """Whether a task keeps the connection of its thread while it waits for a lock."""

    async def waiter() -> bool:
        await sync_to_async(read)()
        before = await sync_to_async(lambda: connections[ALIAS].connection)()
        assert before is not None
        with held_by_somebody_else():
            await locks.lock("product_1").aacquire(timeout=0.5)
        after = await sync_to_async(lambda: connections[ALIAS].connection)()
        await sync_to_async(lambda: connections[ALIAS].close())()
        return after is before

    return asyncio.run(waiter())


def test_a_task_gives_them_back_unless_a_setting_keeps_them(settings: Any) -> None:
    assert not kept_over_a_wait()
    settings.DISTLOCK_KEEP_CONNECTIONS = True
    assert kept_over_a_wait()


def test_a_thread_that_is_busy_prolongs_no_wait() -> None:
    """Without a server's `ThreadSensitiveContext` all tasks share it, and somebody else may be in it."""
    go = threading.Event()

    async def waiter() -> bool:
        busy = asyncio.create_task(sync_to_async(go.wait)(60))
        try:
            with held_by_somebody_else(), pytest.raises(LockTimeout):
                async with locks.lock("product_1", timeout=0.1):
                    pass
            return busy.done()
        finally:
            go.set()
            await busy

    assert not asyncio.run(waiter())
