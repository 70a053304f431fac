from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from demo_shop.configuration import Configuration
from demo_shop.guards import Decorator, guarded_async
from demo_shop.sale import Refusal, sold_out


def refuse(refusal: Refusal) -> Any:
    return SimpleNamespace(headers={}, status=refusal.status)


def guard(slug: str) -> Decorator:
    return guarded_async(Configuration(guard=slug), lambda view: view, lambda ids: map(str, ids), refuse)


async def most_inside(slug: str, *carts: list[int]) -> int:
    """How many views were inside at once. No two tests sell the same product: a lock stays with its loop."""
    inside = most = 0

    @guard(slug)
    async def view(ids: list[int]) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(10):
            await asyncio.sleep(0)  # the others, who may enter if nothing keeps them out
        inside -= 1
        return SimpleNamespace(headers={})

    await asyncio.wait_for(asyncio.gather(*(view(ids=cart) for cart in carts)), 30)
    return most


@pytest.mark.parametrize(("slug", "most"), [("none", 3), ("process", 1)])
def test_the_process_lock_lets_one_task_in_at_a_time(slug: str, most: int) -> None:
    assert asyncio.run(most_inside(slug, [1], [1], [1])) == most


def test_carts_that_name_the_same_products_in_another_order_do_not_wait_for_each_other() -> None:
    assert asyncio.run(most_inside("process", [3, 4], [4, 3], [3, 4], [4, 3])) == 1


def test_two_products_are_sold_at_once() -> None:
    assert asyncio.run(most_inside("process", [5], [6])) == 2


def test_the_process_lock_is_kept_until_what_a_buyer_who_went_away_began_has_ended() -> None:
    inside: list[str] = []
    begun, end = threading.Event(), threading.Event()

    def write() -> None:
        inside.append("writes")
        begun.set()
        assert end.wait(30)
        inside.append("has written")

    @guard("process")
    async def view(ids: list[int]) -> Any:
        await sync_to_async(write, thread_sensitive=False)()
        return SimpleNamespace(headers={})

    async def main() -> None:
        gone = asyncio.create_task(view(ids=[7]))
        try:
            assert await asyncio.to_thread(begun.wait, 30)
            gone.cancel()
            other = asyncio.create_task(view(ids=[7]))
            # Both do what they can do now.
            for _ in range(10):
                await asyncio.sleep(0)
        finally:
            end.set()
        await asyncio.wait_for(other, 30)
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())
    assert inside == ["writes", "has written"] * 2


@pytest.mark.parametrize("slug", ["none", "process", "distributed"])
def test_a_refusal_is_answered_and_tells_its_wait(slug: str) -> None:
    @guard(slug)
    async def view(ids: list[int]) -> Any:
        raise sold_out()

    answer = asyncio.run(view(ids=[1]))
    assert answer.status == 409
    assert answer.headers["Server-Timing"].startswith("wait;dur=")


def test_a_guard_that_can_not_be_awaited_is_refused_with_those_that_can() -> None:
    with pytest.raises(SystemExit, match=r"'for-update'\. Async views have: none, process, distributed"):
        guard("for-update")
