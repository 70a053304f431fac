"""What all parts of the conformance kit share."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.backends.base import Ask
from distlock.engine.machine import Engine
from distlock.engine.name_grant import NameGrant
from distlock.namespace import EngineNamespace

#: Seconds after which a test gives up on something that should happen soon.
PATIENCE = 20.0
#: A wait that has to end in vain: long enough for an answer on a busy machine, seconds.
BRIEF = 0.5
#: A lifetime that no test outlives, seconds: nothing comes right just because a lease ended.
LONG = 60.0


Connect = Callable[..., distlock.Locks]


class ConformanceFixtures:
    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `distlock.connect`."""
        return {}

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


def ask_of(grant: distlock.Grant) -> Ask:
    """What the lock service was asked for the grant of one name: for those who break locks on purpose."""
    assert isinstance(grant, NameGrant)
    return grant._hold.ask


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a state that nothing announces."""
    pause = threading.Event()
    deadline = clock.now() + PATIENCE
    while not condition():
        assert clock.now() < deadline, f"not within {PATIENCE:g} seconds: {what}"
        pause.wait(0.005)


def wait_for_waiters(locks: distlock.Locks, count: int) -> None:
    wait_until(lambda: engine_of(locks).rooms.waiting == count, f"{count} waiters")
