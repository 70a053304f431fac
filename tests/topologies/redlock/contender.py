"""Clients of Redlock, each as one process has one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.testing.protocol_fixtures import Contender
from tests.backend_class import backend_class

RedlockBackend = backend_class("redlock://a,b,c")

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
