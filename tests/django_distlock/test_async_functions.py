"""Plain async functions under a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse
from django.test import Client

from distlock.current import current_grant
from distlock.errors import ConfigurationError, LockTimeout
from django_distlock import distributed_lock
from tests.django_distlock.event_loop import Counter, held_by_somebody_else

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
