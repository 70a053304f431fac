"""A lock that a request has to come to before it may commit: it is on a method that the view overrides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded


@dataclass(slots=True, eq=False)
class Expected:
    """*guarded*, to which one request has to come. *view*: the method that has to call it, for messages."""

    guarded: Guarded
    view: str
    passed: bool = False

    def refuse(self) -> None:
        """Raise `ConfigurationError` unless the request has come to it."""
        if not self.passed:
            raise ConfigurationError(
                f"{self.view} did not call that of its base {self.guarded.where}, which is locked, and the "
                f"arguments of the route don't say what to lock instead: write @{self.guarded.told} above "
                "this one, too, with a name that they make, or call the base on every path."
            )


_expected: ContextVar[Expected | None] = ContextVar("distlock_flask_expected", default=None)


@contextmanager
def expecting(guarded: Guarded, view: str) -> Iterator[Expected]:
    """Around a view."""
    expected = Expected(guarded, view)
    before = _expected.set(expected)
    try:
        yield expected
    finally:
        _expected.reset(before)


def passed(guarded: Guarded) -> None:
    """The lock of *guarded* is held."""
    expected = _expected.get()
    if expected is not None and expected.guarded is guarded:
        expected.passed = True


def refuse_unpassed() -> None:
    """Raise `ConfigurationError` where a view is about to commit that has not come to its lock."""
    if (expected := _expected.get()) is not None:
        expected.refuse()
