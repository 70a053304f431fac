"""What a view of the Quart shop has in its thread: the lock has to be kept until that has ended."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
from typing import Any

import pytest

from demo_shop.quart_shop.selling import in_thread
from tests.docs.blocks import ROOT, blocks


def test_a_view_whose_client_goes_away_waits_for_its_thread() -> None:
    begun, end, done = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        assert end.wait(30)
        done.set()

    async def main() -> None:
        view = asyncio.create_task(in_thread(write))
        try:
            assert await asyncio.to_thread(begun.wait, 30)
            # Once when its client goes away, and once more when the server shuts down.
            for _ in range(2):
                view.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)  # its turn
                assert not view.done()
        finally:
            end.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(view, 30)
        assert done.is_set()

    asyncio.run(main())


def test_what_it_raises_for_a_client_who_went_away_is_no_news_of_asyncio() -> None:
    begun, end = threading.Event(), threading.Event()
    told: list[dict[str, Any]] = []

    def refuse() -> None:
        begun.set()
        assert end.wait(30)
        raise ZeroDivisionError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        view = asyncio.create_task(in_thread(refuse))
        try:
            assert await asyncio.to_thread(begun.wait, 30)
            view.cancel()
            await asyncio.sleep(0)  # its turn
        finally:
            end.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(view, 30)

    asyncio.run(main())
    gc.collect()
    assert not told


def test_what_it_returns_or_raises_is_the_function_s() -> None:
    assert asyncio.run(in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 7, 0))


def body_of(text: str, name: str) -> list[str]:
    """The statements of a function, without its docstring."""
    found = (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.AsyncFunctionDef))
    (function,) = (one for one in found if one.name == name)
    return [ast.unparse(one) for one in function.body[bool(ast.get_docstring(function)) :]]


def test_it_is_the_one_of_the_page() -> None:
    (page,) = (block.text for block in blocks() if "async def in_thread" in block.text)
    code = (ROOT / "demo_shop/quart_shop/selling.py").read_text("utf-8")
    assert body_of(page, "in_thread") == body_of(code, "in_thread")
