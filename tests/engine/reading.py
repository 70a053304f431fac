"""What tests of readers and permits share: a scene of a few processes, and who comes as whom."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from distlock.backends.memory import MemoryBackend
from distlock.engine import hold, wait_queue, wait_queues
from distlock.engine.hold import NameGrant
from tests.engine.scene import Caller, Scene

Owners = Callable[[int | None], None]


@pytest.fixture
def come_as(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """Each caller is a thread of its own, but those that come after ``come_as(number)``."""
    count = itertools.count(100)

    def come_as(number: int | None) -> None:
        for module in (hold, wait_queue, wait_queues):
            monkeypatch.setattr(
                module, "current_owner", lambda: (next(count) if number is None else number, None)
            )

    come_as(None)
    return come_as


@pytest.fixture
def scene() -> Scene:
    return Scene(processes=3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes of the requests that were sent."""
    sent: list[str] = []
    honest = MemoryBackend.request

    def request(self: MemoryBackend, ask: Any, deadline: float = math.inf) -> Any:
        sent.append(ask.mode)
        return honest(self, ask, deadline)

    monkeypatch.setattr(MemoryBackend, "request", request)
    return sent


def granted(caller: Caller) -> NameGrant:
    caller.go()
    assert isinstance(caller.grant, NameGrant)
    return caller.grant


def queues(scene: Scene, process: int = 0) -> Any:
    return scene.all[process].engine.queues
