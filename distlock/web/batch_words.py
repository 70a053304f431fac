"""What ``batch=`` of a guard may be, and what may not have it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from distlock.errors import ConfigurationError
from distlock.web.names.sources import Names, where_of

#: More would be held up by a turn's end anyway.
MOST = 1000


def check_batch(batch: object, names: Names) -> int | None:
    """Return *batch*, of a guard on *names*, or raise `ConfigurationError`."""
    if batch is None:
        return None
    if not isinstance(batch, int) or isinstance(batch, bool) or not 2 <= batch <= MOST:
        raise ConfigurationError(
            f"batch={batch!r} has to be a whole number from 2 to {MOST}: so many requests at the most share "
            "a transaction. Write batch=32, or leave it out."
        )
    if len(names.sources) > 1:
        raise ConfigurationError(f"batch={batch} stands beside {len(names.sources)} names. {_ONE_NAME}")
    return batch


def refuse_async(function: Callable[..., Any], batch: int | None) -> None:
    """Raise `ConfigurationError` where *function* can't be part of a *batch*: it has no thread of its own."""
    if batch is not None and inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{where_of(function)} is async and has batch={batch}: a transaction goes round threads, and not "
            "tasks. Write a plain 'def', or leave batch= out."
        )


def no_stream(where: str) -> ConfigurationError:
    """For a view with ``batch=`` whose response is made after its transaction."""
    return ConfigurationError(
        f"{where} has batch=, and returned a streamed response, whose content is made after the shared "
        "transaction: return it whole, or leave batch= out."
    )


def one_name(where: str, names: Sequence[str]) -> ConfigurationError:
    """For a call of *where*, which has ``batch=``, with several names."""
    return ConfigurationError(f"{where} has batch= and wants {', '.join(map(repr, names))}. {_ONE_NAME}")


def one_database(where: str, databases: list[str]) -> ConfigurationError:
    """For a guard of *where* that has ``batch=``, and begins transactions in these *databases*."""
    if databases:
        shown = ", ".join(map(repr, databases))
        return ConfigurationError(
            f"{where} has batch=, and transactions of several databases: {shown}. Requests share one: leave "
            "batch= out, or let the others commit by themselves."
        )
    return ConfigurationError(
        f"{where} has batch=, and no transaction that requests could share: write fence=True beside it."
    )


_ONE_NAME = (
    "Only requests that wait for one and the same lock can share a transaction: leave batch= out, or name "
    "one lock."
)
