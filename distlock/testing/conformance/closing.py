"""The conformance kit: a closed or dropped client leaves nothing open, and a closed one can be used again."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.engine import maintenance
from distlock.locks import latch_waits
from distlock.testing.protocol_fixtures import Contender, ProtocolFixtures, ask
from distlock.testing.waits import BRIEF, PATIENCE, engine_of, wait_for_waiters, wait_until

#: Seconds of a lease so short that it is renewed during a test.
_TTL = 0.5


def opened() -> set[object]:
    """Return the threads of this process, and its open file descriptors with their targets.

    Threads that call lock services for asyncio tasks are left out, because all clients share them.
    """
    found: set[object] = {one for one in threading.enumerate() if not one.name.startswith("distlock-io")}
    folder = Path("/proc/self/fd")
    for name in os.listdir(folder) if folder.exists() else []:
        # The descriptor of this listing is closed already.
        with suppress(FileNotFoundError):
            found.add((name, os.readlink(folder / name)))
    return found


def use(url: str, options: dict[str, Any], name: str) -> None:
    """Make two clients hold, wait, watch, read and renew, in threads and tasks, and do not close them."""
    one, two = (distlock.connect(url, prefix="kit", timeout=PATIENCE, ttl=_TTL, **options) for _ in range(2))

    def take() -> None:
        with two.lock(name):
            pass

    async def take_in_a_task() -> None:
        async with two.lock(name):
            pass

    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            with one.lock(name):
                waiting = pool.submit(take)
                wait_for_waiters(two, 1)
            waiting.result(PATIENCE)
    asyncio.run(take_in_a_task())
    if engine_of(two).backend.capabilities.latch:
        one.latch(name, 1).make()
        assert not two.latch(name).wait(BRIEF)
        assert one.latch(name).delete()
    if engine_of(two).backend.capabilities.read:
        with two.read_lock(name), one.read_lock(name):
            pass
    with one.lock(name):
        renewed = clock.now() + 2 * _TTL
        wait_until(lambda: clock.now() > renewed, "it is renewed")


class CloseConformance(ProtocolFixtures):
    """Tests for all backends."""

    def test_a_close_leaves_nothing_open(self, contender: Callable[[], Contender], key: str) -> None:
        before = opened()
        holder, waiter = contender(), contender()
        first, second = ask(key), ask(key)
        for _ in range(2):
            # The second round opens both backends again, and they have to close again.
            holder.held(first)
            waiter.queued(second)
            # A lock service may learn only by the second request where to send notifications.
            waiter.queued(second)
            holder.backend.release(first)
            holder.backend.close()
            # The waiter closes although the lock was handed off to it.
            waiter.backend.close()
            assert opened() - before == set()

    def test_a_dropped_client_leaves_nothing_open(
        self, url: str, options: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Drop a client without a close, after it has used all its threads, connections and descriptors."""
        for module in (maintenance, latch_waits):
            monkeypatch.setattr(module, "LINGER", 0.05)
        gc.collect()
        before = opened()
        use(url, options, key)

        def is_freed() -> bool:
            gc.collect()
            return opened() - before == set()

        with suppress(AssertionError):
            wait_until(is_freed, "all is given back")
        left = opened() - before
        assert not left, left

    def test_an_unused_backend_closes(self, contender: Callable[[], Contender]) -> None:
        before = opened()
        contender().backend.close()
        assert opened() - before == set()

    def test_closing_again_does_nothing(self, one: Contender, two: Contender, key: str) -> None:
        first = ask(key)
        one.held(first)
        one.backend.release(first)
        one.backend.close()
        two.held(ask(key))
        one.backend.close()
        assert two.backend.locked(key)

    def test_a_closed_backend_waits_no_more(self, one: Contender, two: Contender, key: str) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(second)
        two.backend.close()
        one.backend.release(first)
        assert not one.backend.locked(key)
        assert two.backend.cancel(second) is False
        assert two.backend.release(second) is False

    def test_nobody_waits_behind_a_closed_backend(
        self, one: Contender, two: Contender, three: Contender, key: str
    ) -> None:
        self.nobody_waits_behind_who_closed(one, two, three, ask(key), ask(key), ask(key))

    def test_a_closed_backend_begins_anew_with_the_next_call(
        self, one: Contender, two: Contender, key: str
    ) -> None:
        first, second = ask(key), ask(key)
        one.held(first)
        two.queued(ask(key))
        two.backend.close()
        two.queued(second)
        two.queued(second)
        one.backend.release(first)
        if two.backend.capabilities.fair:
            # The backend still has the sink that it was opened with.
            assert two.sink.wait_for_notification(key)
        two.held(second)
        assert two.backend.release(second)
        assert not one.backend.locked(key)
