"""Which HTTP methods a guard locks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from distlock.errors import ConfigurationError

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

#: What classes and rules lock unless they are told otherwise: the methods that change something.
UNSAFE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})

#: What a guard that only reads locks unless it is told otherwise.
READING_METHODS = frozenset({"GET", "HEAD"})


def check_methods(methods: Iterable[str]) -> frozenset[str]:
    """*methods*, of a guard, and HEAD where GET is among them. Raises `ConfigurationError`."""
    if isinstance(methods, str):
        raise ConfigurationError(f"methods={methods!r} has to be a list: write methods=[{methods!r}].")
    wanted = [method.upper() if _is_text(method) else method for method in methods]
    if not wanted:
        raise ConfigurationError("methods=[] would never lock: leave it out to lock every method.")
    for method in wanted:
        if method not in METHODS:
            close = difflib.get_close_matches(str(method), METHODS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(METHODS)}."
            raise ConfigurationError(f"{method!r} in methods= is no HTTP method. {hint}")
    # Frameworks answer HEAD by running what GET runs.
    return frozenset(wanted) | ({"HEAD"} if "GET" in wanted else set())


def _is_text(value: object) -> bool:
    return isinstance(value, str)
