"""The pytest plugin of distlock: `race` and the fakes of `distlock.testing` as fixtures.

pytest loads it in every run, so it imports nothing by itself: a fixture imports what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distlock.testing import Race
    from distlock.testing.fakes import Fake


@pytest.fixture
def race(request: pytest.FixtureRequest) -> Callable[..., Race]:
    """`distlock.testing.race`; an address that begins with "/" is one of the test's ``live_server``."""
    from distlock import testing

    def race(action: Any, **words: Any) -> Race:
        if isinstance(action, str) and action.startswith("/"):
            action = _address_of(request.getfixturevalue("live_server")) + action
        return testing.race(action, **words)

    return race


def _address_of(live_server: Any) -> str:
    """What pytest-django calls ``url``; in pytest-flask that is a method."""
    url = live_server.url
    return str(url() if callable(url) else url).rstrip("/")


@pytest.fixture
def _fakes() -> Iterator[ExitStack]:
    with ExitStack() as fakes:
        yield fakes


@pytest.fixture
def contended(_fakes: ExitStack) -> Callable[..., Fake]:
    """`distlock.testing.contended`, from the call to the end of the test, or of its ``with`` block."""
    from distlock import testing

    return lambda *names: _fakes.enter_context(testing.contended(*names))


@pytest.fixture
def backend_down(_fakes: ExitStack) -> Callable[[], Fake]:
    """`distlock.testing.backend_down`, from the call to the end of the test, or of its ``with`` block."""
    from distlock import testing

    return lambda: _fakes.enter_context(testing.backend_down())


@pytest.fixture
def lose(_fakes: ExitStack) -> Callable[..., Fake]:
    """`distlock.testing.lose`, from the call to the end of the test, or of its ``with`` block."""
    from distlock import testing

    return lambda *names: _fakes.enter_context(testing.lose(*names))


@pytest.fixture
def held_locks() -> Callable[[], list[str]]:
    """`distlock.testing.held_locks`."""
    from distlock import testing

    return testing.held_locks


@pytest.fixture
def taken_locks(_fakes: ExitStack) -> list[str]:
    """The names of all locks that are granted while the test runs, from where the fixture is made."""
    from distlock import testing

    return _fakes.enter_context(testing.taken_locks())
