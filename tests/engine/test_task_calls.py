"""A task calls its lock service in a thread, and is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from distlock import clock
from distlock.engine.commands import Call
from distlock.engine.drivers import _called
from distlock.errors import BackendUnavailable


@pytest.mark.parametrize("is_bounded", [True, False])
def test_what_a_call_of_a_cancelled_task_has_failed_with_is_no_news_of_asyncio(is_bounded: bool) -> None:
    begun, over = threading.Event(), threading.Event()
    told: list[dict[str, Any]] = []

    def fails(deadline: float) -> None:
        begun.set()
        over.wait(60)
        raise BackendUnavailable("the server is gone")

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context))
        until = clock.now() + 60
        call = Call(fails, until=until) if is_bounded else Call(fails, until)
        task = asyncio.create_task(_called(call))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        # It hears of that, and waits until the call is over: another one does not end it either.
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        over.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    gc.collect()
    assert not told
