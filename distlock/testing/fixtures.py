"""What all parts of the conformance kit share."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.backends.base import LockRequest
from distlock.engine.engine import Engine
from distlock.engine.hold import NameGrant
from distlock.locks.engine_namespace import EngineNamespace

#: Seconds after which a test gives up on something that should happen soon.
PATIENCE = 20.0
#: A wait that has to end in vain, seconds. The lock service may answer after its end: see `_awaited`.
BRIEF = 0.5
#: A lifetime that no test outlives, seconds: nothing comes right just because a lease ended.
LONG = 60.0


Connect = Callable[..., distlock.Locks]


class ConformanceFixtures:
    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `distlock.connect`."""
        return {}

    @pytest.fixture(autouse=True)
    def _awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let callers await the last answer for as long as a busy machine takes to give it.

        A short wait ends in vain because the lock service said so. Without this fixture it may end with an
        error, because the client could not open its first connection in time; or leave without a cancel.
        """
        for module in ("engine.engine", "locks.engine_namespace", "locks.multi_lock", "locks.latch_waits"):
            monkeypatch.setattr(sys.modules[f"distlock.{module}"], "LAST_WORDS", PATIENCE)

    @pytest.fixture
    def name(self) -> str:
        return f"product_{secrets.token_hex(4)}"

    @pytest.fixture
    def connect(self, url: str, options: dict[str, Any]) -> Iterator[Callable[..., distlock.Locks]]:
        made: list[distlock.Locks] = []

        def connect(**more: Any) -> distlock.Locks:
            settings = {"prefix": "kit", "timeout": PATIENCE, "ttl": LONG, **options, **more}
            made.append(distlock.connect(url, **settings))
            return made[-1]

        yield connect
        for one in made:
            one.close()

    @pytest.fixture
    def locks(self, connect: Callable[..., distlock.Locks]) -> distlock.Locks:
        return connect()

    @pytest.fixture
    def other(self, connect: Callable[..., distlock.Locks]) -> distlock.Locks:
        """A second client, as another process has one."""
        return connect()

    @pytest.fixture
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(64) as pool:
            yield pool


def engine_of(locks: distlock.Locks) -> Engine:
    assert isinstance(locks.namespace, EngineNamespace)
    return locks.namespace.engine


def ask_of(grant: distlock.Grant) -> LockRequest:
    """Return the lock request of the grant of one name, for tests that break locks on purpose."""
    assert isinstance(grant, NameGrant)
    return grant._hold.request


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a state that nothing announces."""
    pause = threading.Event()
    deadline = clock.now() + PATIENCE
    while not condition():
        assert clock.now() < deadline, f"not within {PATIENCE:g} seconds: {what}"
        pause.wait(0.005)


def wait_until_queued(locks: distlock.Locks) -> None:
    """Wait until the lock service has put every waiting name of *locks* into its queue."""

    def is_queued() -> bool:
        rooms = list(engine_of(locks).queues.by_key.values())
        return bool(rooms) and all(room.queued is not None for room in rooms)

    wait_until(is_queued, "the lock service has queued each name")


def wait_for_waiters(locks: distlock.Locks, count: int) -> None:
    wait_until(lambda: engine_of(locks).queues.waiting == count, f"{count} waiters")
