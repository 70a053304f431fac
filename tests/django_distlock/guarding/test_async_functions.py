"""Plain async functions under a guard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock.errors import ConfigurationError, LockTimeout
from distlock.grants.current import current_grant
from django_distlock import distributed_lock, locks
from django_distlock.clients import idle_connections
from tests.django_distlock.event_loop import Counter, held_by_somebody_else, soon, waiting

Serve = Callable[..., Client]

lock = distributed_lock("product_<id>")


def test_a_plain_async_function_raises() -> None:
    @distributed_lock("product_<id>", timeout=0)
    async def sell(id: int) -> str:
        return current_grant().names[0]

    assert asyncio.run(sell(1)) == "product_1"
    with held_by_somebody_else(), pytest.raises(LockTimeout):
        asyncio.run(sell(id=1))


def test_a_sync_function_does_not_block_the_event_loop() -> None:
    @lock
    def sell(id: int) -> None:
        pytest.fail("ran")

    async def careless() -> None:
        sell(1)

    with pytest.raises(SynchronousOnlyOperation, match=r"write 'async def', or call sync_to_async"):
        asyncio.run(careless())


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_the_event_loops_own_thread_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django lets async code use the database in its own thread, if it is told to."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

    @lock
    async def sell(id: int) -> None:
        pytest.fail("ran")

    async def careless() -> None:
        with transaction.atomic():
            await sell(1)

    with pytest.raises(ConfigurationError, match="inside a transaction of the database 'default'"):
        asyncio.run(careless())


def test_plain_async_functions_exclude_one_another() -> None:
    counter = Counter()

    @lock
    async def sell(id: int) -> None:
        await counter.view(HttpRequest(), id)

    async def many() -> None:
        await asyncio.gather(*(sell(1) for _ in range(8)))

    asyncio.run(many())
    assert (counter.served, counter.most) == (8, 1)


@pytest.mark.django_db(transaction=True)
def test_an_async_function_inside_the_transaction_of_a_view_is_refused(
    serve: Serve, atomic_requests: None
) -> None:
    @lock
    async def sell(id: int) -> None:
        pytest.fail("ran")

    def view(request: HttpRequest, id: int) -> HttpResponse:
        async_to_sync(sell)(id)
        return HttpResponse()

    with pytest.raises(ConfigurationError, match="inside a transaction of the database 'default'"):
        serve(view).post("/product/1")


@pytest.fixture
def patient(settings: Any) -> None:
    settings.DISTLOCK = {"default": {"LOCATION": "memory://shared-thread", "TIMEOUT": 60}}


@pytest.mark.parametrize("first", ["the thread waits", "the holder waits"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_holder_does_not_wait_for_a_thread_that_waits_for_its_lock(
    patient: None, first: str, nested: bool
) -> None:
    entered = asyncio.Event()
    begun, releasing = threading.Event(), threading.Event()

    @lock
    def save(id: int) -> str:
        return "saved"

    def work() -> str:
        begun.set()
        if first == "the holder waits":
            assert releasing.wait(10)
        return save(1)

    async def hold(id: int) -> None:
        entered.set()
        await soon(begun.is_set)
        if first == "the thread waits":
            await soon(lambda: waiting() == 1)

    inner = distributed_lock("shelf_<id>")(hold) if nested else hold

    @lock
    async def sell(id: int) -> None:
        await inner(id)

    async def later() -> str:
        await entered.wait()
        return await sync_to_async(work)()

    async def watch() -> None:
        if first == "the holder waits":
            await soon(lambda: bool(idle_connections._watched))
            releasing.set()

    async def program() -> list[Any]:
        # Outside of a request all that sync_to_async runs is run in one thread.
        both = asyncio.gather(sell(1), later(), watch())
        return await asyncio.wait_for(both, 10)

    assert asyncio.run(program())[1] == "saved"
    assert not locks.lock("product_1").locked()
    assert (idle_connections._waits, idle_connections._watched) == ({}, {})


def test_a_holder_does_wait_for_a_thread_that_waits_for_another_lock(patient: None) -> None:
    held: list[bool] = []

    @distributed_lock("shelf_<id>")
    def save(id: int) -> None:
        held.append(locks.lock("product_1").locked())

    @lock
    async def sell(id: int) -> None:
        tasks.append(asyncio.create_task(sync_to_async(save)(1)))
        await soon(lambda: waiting() == 1)

    tasks: list[asyncio.Task[None]] = []

    async def program() -> None:
        selling = asyncio.create_task(sell(1))
        await soon(lambda: bool(idle_connections._watched))
        go.set()
        await asyncio.wait_for(selling, 10)

    with held_by_somebody_else("shelf_1") as go:
        asyncio.run(program())
    assert held == [True]
