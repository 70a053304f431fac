"""``on_contended="skip"``: a plain function, such as a task, is left out where its lock stays taken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from distlock.errors import ConfigurationError, LockError, LockTimeout, TooManyWaiters
from distlock.web.decorator import Guarded

R = TypeVar("R")

logger = logging.getLogger("distlock")


class SkippableCall:
    """One call of a guarded function that is no view."""

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        self._begun = False

    def body(self, function: Callable[[], R]) -> Callable[[], R]:
        """*function*, for the guard to run. What it raises itself is no reason to skip it."""

        def begin() -> R:
            self._begun = True
            return function()

        return begin

    def is_skipped(self, error: LockError) -> bool:
        """Whether the call ends here, without an error: *error* kept it from its lock."""
        told = self._guarded.told
        if not told.skips or self._begun or not isinstance(error, LockTimeout | TooManyWaiters):
            return False
        logger.info("%s is skipped: %s", self._guarded.where, error)
        return True


def skipping_view(guarded: Guarded) -> str | None:
    """Return the error if *guarded* is a view, and told to be skipped."""
    if not guarded.told.skips:
        return None
    return (
        f'{guarded.where} is a view, and a view has to answer: on_contended="skip" is for plain functions, '
        "such as tasks. Leave it out, and the answer is 423."
    )


def refuse_skipping_view(guarded: Guarded) -> None:
    """Raise `ConfigurationError` where *guarded* is a view, and told to be skipped."""
    if (problem := skipping_view(guarded)) is not None:
        raise ConfigurationError(problem)
