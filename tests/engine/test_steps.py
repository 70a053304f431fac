"""What drives an algorithm: where its tasks sleep, and who makes its calls."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock import clock
from distlock.engine.sans_io import Call, TaskParker, _acall
from distlock.errors import BackendUnavailable

#: Seconds that a passing run never needs.
CEILING = 30.0


class Counting(asyncio.SelectorEventLoop):
    """It counts how often another thread, or a handler, has woken it."""

    woken = 0

    def call_soon_threadsafe(self, *arguments: Any, **more: Any) -> asyncio.Handle:
        self.woken += 1
        return super().call_soon_threadsafe(*arguments, **more)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=Counting) as runner:
        yield runner


def woken(runner: asyncio.Runner) -> int:
    loop = runner.get_loop()
    assert isinstance(loop, Counting)
    return loop.woken


async def passes(parker: TaskParker, wake: Callable[[], object]) -> None:
    """The gate's sleeper comes through when *wake* is called."""
    sleeper = asyncio.create_task(parker.wait(math.inf))
    await asyncio.sleep(0)
    wake()
    await asyncio.wait_for(sleeper, CEILING)


def test_a_task_wakes_another_of_its_loop_without_a_system_call(runner: asyncio.Runner) -> None:
    async def main() -> None:
        parker = TaskParker()
        for _ in range(10):
            await passes(parker, parker.wake)

    runner.run(main())
    assert woken(runner) == 0


def test_a_thread_wakes_a_task(runner: asyncio.Runner) -> None:
    async def main() -> None:
        parker = TaskParker()
        await passes(parker, threading.Thread(target=parker.wake).start)

    runner.run(main())
    assert woken(runner) == 1


def test_a_handler_of_signals_wakes_a_task_while_its_loop_waits_for_nothing_else(
    runner: asyncio.Runner,
) -> None:
    async def main() -> None:
        parker = TaskParker()
        before = signal.signal(signal.SIGALRM, lambda *_: parker.wake())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            began = clock.now()
            await parker.wait(CEILING)
            assert clock.now() - began < CEILING / 2
        finally:
            signal.signal(signal.SIGALRM, before)

    runner.run(main())


def test_a_wake_before_the_sleep_is_not_lost_and_several_count_as_one(runner: asyncio.Runner) -> None:
    async def main() -> None:
        parker = TaskParker()
        parker.wake()
        parker.wake()
        await asyncio.wait_for(parker.wait(math.inf), CEILING)
        began = clock.now()
        await parker.wait(0.05)
        assert clock.now() - began >= 0.04

    runner.run(main())


def test_a_sleep_that_is_cancelled_leaves_the_gate_as_it_was(runner: asyncio.Runner) -> None:
    async def main() -> None:
        parker = TaskParker()
        sleeper = asyncio.create_task(parker.wait(math.inf))
        await asyncio.sleep(0)
        sleeper.cancel()
        parker.wake()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        await asyncio.wait_for(parker.wait(math.inf), CEILING)

    runner.run(main())


def test_a_gate_whose_loop_is_closed_lets_nobody_through() -> None:
    with asyncio.Runner() as runner:
        parker = runner.run(make())
    assert not parker.alive()
    parker.wake()


async def make() -> TaskParker:
    return TaskParker()


# -- calls of a task that is cancelled --------------------------------------------------------------


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
        task = asyncio.create_task(_acall(call))
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
