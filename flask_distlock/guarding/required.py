"""A lock that a request has to come to before it may commit: it is on a method that the view overrides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded


@dataclass(slots=True, eq=False)
class Required:
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


_required: ContextVar[Required | None] = ContextVar("distlock_flask_required", default=None)


@contextmanager
def requiring(guarded: Guarded, view: str) -> Iterator[Required]:
    """Around a view."""
    required = Required(guarded, view)
    before = _required.set(required)
    try:
        yield required
    finally:
        _required.reset(before)


def passed(guarded: Guarded) -> None:
    """The lock of *guarded* is held."""
    required = _required.get()
    if required is not None and required.guarded is guarded:
        required.passed = True


def refuse_unpassed() -> None:
    """Raise `ConfigurationError` where a view is about to commit that has not come to its lock."""
    if (required := _required.get()) is not None:
        required.refuse()
