"""Clients of Redlock, each as one process has one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.redlock import RedlockBackend
from distlock.testing.contenders import Contender

MakeContender = Callable[..., Contender]


@pytest.fixture
def key() -> str:
    return f"redlock:product_{secrets.token_hex(4)}"


@pytest.fixture
def contender() -> Iterator[MakeContender]:
    made: list[Contender] = []

    def make(url: str, kind: type[RedlockBackend] = RedlockBackend, **options: Any) -> Contender:
        made.append(Contender(kind(url, **options)))
        return made[-1]

    yield make
    for one in made:
        one.backend.close()
