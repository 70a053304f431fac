"""The Quart shop of the page on Flask, run as it stands there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import distlock
from distlock.listening import Attempt, Listener
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
    waits = threading.Event()

    class Waits(Attempt):
        def contended(self, holder: object) -> None:
            waits.set()

    class Tells(Listener):
        def asked(self, names: object, where: object) -> Attempt:
            return Waits()

    page = shop(lambda id: sold.append(id) or {"sold": id})  # type: ignore[func-returns-value]
    page["locks"] = distlock.connect("memory://", timeout=30, listener=Tells())

    async def main() -> None:
        other = page["locks"].lock("product_1").acquire()
        buyer = asyncio.create_task(page["app"].test_client().post(PATH))
        assert await asyncio.to_thread(waits.wait, 30)
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
        async with page["app"].test_client().request(PATH, method="POST") as buyer:
            await buyer.send_complete()
            try:
                assert await asyncio.to_thread(begun.wait, 30)
                await buyer.disconnect()
                # It would be had in a moment, if the view let go of it.
                assert await lock.aacquire(timeout=0.2) is None
            finally:
                end.set()
            grant = await lock.aacquire(timeout=30)
            assert grant is not None
            await grant.arelease()

    asyncio.run(main())
