"""One backend, as one process has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.errors import BackendUnavailable
from tests.backend_class import backend_class
from tests.backends.redis.contender import Contender, ask
from tests.redis_server import eventually

SentinelBackend = backend_class("redis+sentinel://localhost/shop")

#: Longer than any failover here takes, also on a busy machine, seconds.
PATIENT = 60.0


class SentinelContender(Contender, SentinelBackend):
    """As that of Redis, at a primary."""


def says_in_the_end(one: SentinelContender, what: str) -> None:
    """Until the error of a short call says *what*: on a busy machine it may be over before that is known."""

    def says() -> bool:
        with pytest.raises(BackendUnavailable) as told:
            one.request(ask())
        return re.search(what, str(told.value)) is not None

    eventually(says, what)


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
