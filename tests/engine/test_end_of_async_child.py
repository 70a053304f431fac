"""A child of multiprocessing that has used locks in asyncio ends: idle threads of executors are told to."""

from __future__ import annotations

import asyncio
import multiprocessing

import distlock

#: Seconds. What has not ended by then never will.
PATIENCE = 60.0


def work() -> None:
    async def lock() -> None:
        async with distlock.connect("memory://").lock("a"):
            pass

    asyncio.run(lock())


def test_a_child_that_has_used_locks_in_asyncio_ends() -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(PATIENCE)
    ended = child.exitcode
    if ended is None:
        child.kill()
    assert ended == 0
