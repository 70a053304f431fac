"""Whatever callers do in whatever order: files answer as the memory backend does, which is the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.testing.protocol_fixtures import LONG
from tests.backend_class import backend_class
from tests.backends.as_memory import Both

FileBackend = backend_class("file:///nowhere")


@pytest.fixture
def both(url: str) -> Iterator[Both]:
    both = Both(lambda: FileBackend(url, ack_window=LONG), clients=3)
    yield both
    both.close()


@pytest.mark.parametrize("permits", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_it_answers_as_its_model(both: Both, seed: int, permits: bool) -> None:
    both.play(seed, permits)
