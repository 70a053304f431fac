"""One backend, as one process has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.sentinel import SentinelBackend
from tests.backends.redis.contender import Contender

#: Longer than any failover here takes, also on a busy machine, seconds.
PATIENT = 60.0


class SentinelContender(Contender, SentinelBackend):
    """As that of Redis, at a primary."""


MakeContender = Callable[..., SentinelContender]


@pytest.fixture
def contender() -> Iterator[MakeContender]:
    made: list[SentinelContender] = []

    def make(url: str, **options: Any) -> SentinelContender:
        made.append(SentinelContender(url, **{"io_timeout": PATIENT, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()
