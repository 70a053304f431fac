"""Fixtures with clients for the conformance kit, waits for their state, and lost replies."""

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
from distlock.errors import BackendUnavailable
from distlock.locks.engine_namespace import EngineNamespace

#: Seconds after which a test gives up on something that should happen soon.
PATIENCE = 20.0
#: Seconds of a wait that has to time out. The lock service may answer after its end: see `_awaited`.
BRIEF = 0.5
#: Seconds of a lease that no test outlives, so that no test passes only because a lease ended.
LONG = 60.0

#: The methods of all backends whose replies can be lost.
REQUESTS = ("request", "cancel", "renew", "release", "raise_fence", "locked")
#: More such methods of backends that are `distlock.backends.latches.Latches`.
OF_LATCHES = ("make_latch", "count_latch_down", "delete_latch", "look_at_latches")

Connect = Callable[..., distlock.Locks]


class ConformanceFixtures:
    """Fixtures of the parts that use clients, as `distlock.connect` returns them."""

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `distlock.connect`."""
        return {}

    @pytest.fixture(autouse=True)
    def _awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let callers await the last answer for as long as a busy machine takes to give it.

        A short wait then times out because the lock service said so. Without this fixture it may end with an
        error, because the client could not open its first connection in time, or without a cancel.
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
    """Poll until *condition* holds. Fails after `PATIENCE` seconds."""
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
    """Wait until *count* callers wait for locks."""
    wait_until(lambda: engine_of(locks).queues.waiting == count, f"{count} waiters")


def latch_waiters(locks: distlock.Locks) -> int:
    return sum(len(watched.waiters) for watched in locks.namespace.latches._watched.values())


def wait_for_latch_waiters(locks: distlock.Locks, count: int) -> None:
    """Wait until *count* callers wait for latches, and the client has asked for each of their latches."""

    def asleep() -> bool:
        those = [
            one for each in list(locks.namespace.latches._watched.values()) for one in list(each.waiters)
        ]
        return len(those) == count and all(one.seen for one in those)

    wait_until(asleep, f"{count} waiters")


class Faulty:
    """A backend whose next replies can be lost after the lock service has carried out the request."""

    def __init__(self, backend: Any) -> None:
        #: The number of next replies that are lost, by method.
        self.lose_replies: dict[str, int] = {}
        #: A function that runs once before the caller learns of a lost reply, by method.
        self.meanwhile: dict[str, Callable[[], object]] = {}
        for method in (*REQUESTS, *OF_LATCHES):
            if not hasattr(backend, method):
                continue
            setattr(backend, method, self._on_the_way(method, getattr(backend, method)))

    def _on_the_way(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            answer = function(*arguments)
            if self.lose_replies.get(method, 0) > 0:
                self.lose_replies[method] -= 1
                self._let_happen(self.meanwhile.pop(method, None))
                raise BackendUnavailable(f"The reply to {method} was lost (a planted fault).")
            return answer

        return call

    @staticmethod
    def _let_happen(others: Callable[[], object] | None) -> None:
        if others is not None:
            # This thread is inside a call, and can make no other one.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(others).result()
