"""What a guarded function returns, where that would go on after its lock is released."""

from __future__ import annotations

import inspect
import logging

from distlock.errors import ConfigurationError

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
