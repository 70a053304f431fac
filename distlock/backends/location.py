"""Where a lock service is, in all the ways that a site may say it: in the end it is a URL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from distlock.backends import class_of
from distlock.backends.optional import TakesArguments
from distlock.errors import ConfigurationError


class Pooled(Protocol):
    """A client of redis-py, sync or async."""

    connection_pool: Any


Place = str | Pooled | Mapping[str, Any]
Location = Place | Callable[[], Place]


def located(
    location: Location, backend: str | None = None, *, db: int | None = None
) -> tuple[str, dict[str, object]]:
    """The URL that *location* means, and the options that it brings. Connects to nothing.

    *location*: a URL; a client of redis-py, which is only read; a dict of that library's arguments; or a
    function without arguments that returns one of these. *backend*: see `distlock.connect`. *db*: another
    database of that server, where the location is no URL. Raises `ConfigurationError`.
    """
    if callable(location) and not hasattr(location, "connection_pool"):
        location = _returned_by(location)
    if isinstance(location, str):
        return location, {}
    if location is None:
        raise ConfigurationError(
            "The URL of the lock service is None: see whether the variable that it comes from is set. "
            "Give one, such as redis://localhost:6379/0."
        )
    word = backend or "redis"
    if not issubclass(found := class_of(word), TakesArguments):
        raise ConfigurationError(f"The {word} backend takes a URL, and no {type(location).__name__}.")
    return found.url_of(location, db)


def _returned_by(function: Callable[[], Place]) -> Place:
    name = getattr(function, "__qualname__", type(function).__name__)
    if isinstance(function, type):
        raise ConfigurationError(f"The lock service is given as the class {name}: give an object of it.")
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{name} is async, and nobody could await it: write 'def'.")
    try:
        returned = function()
    except Exception as error:
        raise ConfigurationError(
            f"{name}() has to say where the lock service is, but raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(returned, str | Mapping) and not hasattr(returned, "connection_pool"):
        raise ConfigurationError(
            f"{name}() has to say where the lock service is, but returned a {type(returned).__name__}. Let "
            "it return a URL, a client of redis-py, or a dict of its arguments."
        )
    return returned
