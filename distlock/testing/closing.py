"""The conformance kit: a close leaves nothing behind, and is no end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from distlock.testing.places import nobody_waits_behind_who_closed
from distlock.testing.protocol import Contender, ProtocolFixtures, ask


def opened() -> set[object]:
    """What this process has open: its threads, and its descriptors with what they lead to."""
    found: set[object] = set(threading.enumerate())
    folder = Path("/proc/self/fd")
    for name in os.listdir(folder) if folder.exists() else []:
        # Only the one that lists them is gone already.
        with suppress(FileNotFoundError):
            found.add((name, os.readlink(folder / name)))
    return found


class CloseConformance(ProtocolFixtures):
    def test_a_close_leaves_nothing_open(self, contender: Callable[[], Contender], key: str) -> None:
        before = opened()
        holder, waiter = contender(), contender()
        first, second = ask(key), ask(key)
        for _ in range(2):
            # The second time around begins anew, and has to end as well.
            holder.held(first)
            waiter.queued(second)
            # A lock service may learn only now where to send hints.
            waiter.queued(second)
            holder.backend.release(first)
            holder.backend.close()
            # The lock was handed over to it.
            waiter.backend.close()
            assert opened() - before == set()

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
        nobody_waits_behind_who_closed(one, two, three, ask(key), ask(key), ask(key))

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
            # The sink is still the one that it was opened with.
            assert two.sink.wait_for_hint(key)
        two.held(second)
        assert two.backend.release(second)
        assert not one.backend.locked(key)
