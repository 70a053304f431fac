"""The Quart shop of the page on Flask, run as it stands there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import distlock
from tests.docs.blocks import blocks

PATH = "/products/1/reduce"


def shop(sell: Callable[[int], object], timeout: float = 30) -> dict[str, Any]:
    (page,) = (block for block in blocks() if "from quart import Quart" in block.text)
    made: dict[str, Any] = {"__name__": "shop"}
    exec(compile(page.text, page.page, "exec"), made)
    made |= {"sell": sell, "locks": distlock.connect("memory://", timeout=timeout)}
    return made


def test_a_buyer_waits_for_the_lock_and_then_sells() -> None:
    sold: list[int] = []
    page = shop(lambda id: sold.append(id) or {"sold": id})  # type: ignore[func-returns-value]

    async def main() -> None:
        other = page["locks"].lock("product_1").acquire()
        buyer = asyncio.create_task(page["app"].test_client().post(PATH))
        for _ in range(50):
            await asyncio.sleep(0)  # its turn
        assert (sold, buyer.done()) == ([], False)
        await other.arelease()
        answer = await asyncio.wait_for(buyer, 30)
        assert (answer.status_code, await answer.get_json()) == (200, {"sold": 1})

    asyncio.run(main())
    assert sold == [1]


def test_a_buyer_who_waits_too_long_is_told_to_come_again() -> None:
    page = shop(lambda id: pytest.fail("it was sold"), timeout=0.01)

    async def main() -> None:
        with page["locks"].lock("product_1"):
            answer = await page["app"].test_client().post(PATH)
        assert (answer.status_code, await answer.get_json()) == (423, {"code": "lock_contended"})

    asyncio.run(main())


def test_the_lock_is_kept_while_the_thread_of_a_buyer_who_went_away_sells() -> None:
    begun, end = threading.Event(), threading.Event()

    def sell(id: int) -> dict[str, int]:
        begun.set()
        assert end.wait(30)
        return {"sold": id}

    page = shop(sell)
    lock = page["locks"].lock("product_1")

    async def main() -> None:
        async with page["app"].test_app():
            buyer = asyncio.create_task(page["app"].test_client().post(PATH))
            try:
                assert await asyncio.to_thread(begun.wait, 30)
                buyer.cancel()
                for _ in range(50):
                    await asyncio.sleep(0)  # its turn
                assert lock.acquire(timeout=0) is None
            finally:
                end.set()
            grant = await lock.aacquire(timeout=30)
            assert grant is not None
            await grant.arelease()

    asyncio.run(main())
