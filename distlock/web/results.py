"""What becomes of a call of a guarded function: what it may return, and when it is skipped."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TypeVar

from distlock.errors import ConfigurationError, LockError, LockTimeout, TooManyWaiters
from distlock.web.decorator import Guarded

R = TypeVar("R")

logger = logging.getLogger("distlock")


def refuse_coroutine(where: str, result: object) -> None:
    """Raise `ConfigurationError` if *result* is a coroutine. *where*: whose it is."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            f"{where} returned a coroutine, whose body would run after the lock is released: write "
            "@distributed_lock directly above the 'async def', or 'async def' in the decorators between."
        )


def warn_of_stream(where: str, told: set[str]) -> None:
    """Warn of a response whose content code of the site makes later. Files are not such.

    Args:
        where: The view that has returned it.
        told: The views that were warned of. Each is warned of once.
    """
    if where in told:
        return
    told.add(where)
    logger.warning("%s returned a streamed response: its content is made after the lock is released.", where)


class SkippableCall:
    """One call of a guarded function that is no view."""

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        self._begun = False

    def body(self, function: Callable[[], R]) -> Callable[[], R]:
        """Return *function* for the guard to run. An error that it raises itself is no reason to skip it."""
        if not self._guarded.told.skips:
            return function

        def begin() -> R:
            self._begun = True
            return function()

        return begin

    def is_skipped(self, error: LockError) -> bool:
        """Return whether the call ends here, without an error: *error* kept it from its lock."""
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
    if guarded.told.skips and (problem := skipping_view(guarded)) is not None:
        raise ConfigurationError(problem)
