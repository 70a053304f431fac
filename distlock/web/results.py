"""What a guarded function may return, and when its call is skipped."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TypeVar

from distlock.errors import ConfigurationError, LockError, LockTimeout, TooManyWaiters
from distlock.web.guard_marks import Guarded

R = TypeVar("R")

logger = logging.getLogger("distlock")


def refuse_coroutine(where: str, result: object) -> None:
    """Close *result* and raise `ConfigurationError` if it is a coroutine. *where*: what returned it."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            f"{where} returned a coroutine, whose body would run after the lock is released: write "
            "@distributed_lock directly above the 'async def', or 'async def' in the decorators between."
        )


def warn_of_stream(where: str, logged: set[str]) -> None:
    """Log a warning that the content of a view's response is made after the release of the lock.

    Args:
        where: The view that has returned the response. Callers leave out files.
        logged: The views that were logged before, to which *where* is added. Each is logged once.
    """
    if where in logged:
        return
    logged.add(where)
    logger.warning("%s returned a streamed response: its content is made after the lock is released.", where)


class SkippableCall:
    """One call of a guarded function that is no view. ``on_contended="skip"`` may skip it."""

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        self._begun = False

    def body(self, function: Callable[[], R]) -> Callable[[], R]:
        """Return the function to call in the place of *function*. It notes that the call has begun.

        From then on `is_skipped` returns False, so that a lock error of *function* is no reason to skip.
        """
        if not self._guarded.options.skips:
            return function

        def begin() -> R:
            self._begun = True
            return function()

        return begin

    def is_skipped(self, error: LockError) -> bool:
        """Return whether to skip the call, because *error* says that it got no lock. If so, log it."""
        options = self._guarded.options
        if not options.skips or self._begun or not isinstance(error, LockTimeout | TooManyWaiters):
            return False
        logger.info("%s is skipped: %s", self._guarded.where, error)
        return True


def skipping_view(guarded: Guarded) -> str | None:
    """Return the error for *guarded*, a view, if it has ``on_contended="skip"``, else None."""
    if not guarded.options.skips:
        return None
    return (
        f'{guarded.where} is a view, and a view has to answer: on_contended="skip" is for plain functions, '
        "such as tasks. Leave it out, and the answer is 423."
    )


def refuse_skipping_view(guarded: Guarded) -> None:
    """Raise `ConfigurationError` if *guarded*, a view, has ``on_contended="skip"``."""
    if guarded.options.skips and (problem := skipping_view(guarded)) is not None:
        raise ConfigurationError(problem)
