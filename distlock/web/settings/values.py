"""The value of each key of ``DISTLOCK``: what it may be, and what to say where it is something else."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from distlock.backends.base import Capabilities
from distlock.backends.known import home_of, schemes
from distlock.errors import ConfigurationError
from distlock.metrics import KINDS
from distlock.names import check_prefix
from distlock.numbers import A_COUNT, LONG, a_number_of_seconds, is_count, is_seconds
from distlock.web.settings.locations import is_elsewhere

#: The words for what is no lock service, and what that can do.
WITHOUT_SERVICE = {
    "dummy": Capabilities(fence=True, read=True, permits=True),
    "database": Capabilities(several_processes=True, fence=True, read=True),
}


def serving(word: str) -> str | None:
    """Return the identity of the scheme *word*, or None. Schemes with the same one may stand together."""
    if word in WITHOUT_SERVICE:
        return word
    home = home_of(word)
    return home and home.path


def _seconds(value: Any) -> str | None:
    return None if is_seconds(value) else f"It {a_number_of_seconds()}"


def _wait(value: Any) -> str | None:
    return (
        None if is_seconds(value, zero=True, most=LONG) else f"It {a_number_of_seconds(zero=True, most=LONG)}"
    )


def _turn(value: Any) -> str | None:
    if value is None or is_seconds(value, zero=True):
        return None
    return f"It {a_number_of_seconds(zero=True)} None is 0.05."


def _count(value: Any) -> str | None:
    return None if is_count(value) else f"It {A_COUNT}"


def _cap(value: Any) -> str | None:
    return None if value is None or is_count(value) else f"It {A_COUNT} None is no limit."


def _backend(value: Any) -> str | None:
    scheme, is_url, _ = value.partition("://") if isinstance(value, str) else ("", "", "")
    django = scheme.startswith("django.")
    try:
        if scheme and not django and serving(scheme) is not None:
            return "It holds a URL, which belongs into LOCATION." if is_url else None
        words = [*WITHOUT_SERVICE, *schemes()]
    except ConfigurationError as error:
        return str(error)
    remedy = f"Known are {', '.join(words)}, or a dotted path."
    if django:
        return f"Django's backends keep caches or data, no locks. {remedy}"
    if close := difflib.get_close_matches(scheme, words, n=1):
        return f"Did you mean {close[0]!r}? {remedy}"
    # Only a word is shown, because a longer text may hold a password.
    return f"No lock service is known as {scheme!r}. {remedy}" if scheme.isidentifier() else remedy


def _location(value: Any) -> str | None:
    if is_elsewhere(value):
        return None
    if not isinstance(value, str) or not value:
        return (
            "It has to be a URL, such as 'redis://localhost:6379/0'; a cache, as 'cache:default'; a client "
            "of redis-py; a dict of its arguments; or a function that returns one, or its dotted path."
        )
    if value.count("[") != value.count("]"):
        return "An address of IPv6 stands in brackets, as in 'redis://[::1]:6379/0'."
    return None


def _prefix(value: Any) -> str | None:
    try:
        check_prefix(value)
    except ConfigurationError as error:
        return str(error)
    return None


def _on_backend_down(value: Any) -> str | None:
    if value in ("refuse", "run"):
        return None
    return "It has to be 'refuse' (no lock, no view), or 'run' where FENCE is set."


def _fence(value: Any) -> str | None:
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return None
    return "It has to be True, False, or the name of the database that has the fence's table."


def _metrics(value: Any) -> str | None:
    if value is None or value in KINDS or callable(value):
        return None
    return "It has to be 'prometheus', 'opentelemetry', None, or a function that gives a listener."


def _options(value: Any) -> str | None:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return None
    return "It has to be a dict of the backend's own options."


#: Key -> what gives the remedy for its value, or None where that is fine.
CHECKS: dict[str, Callable[[Any], str | None]] = {
    "BACKEND": _backend,
    "LOCATION": _location,
    "PREFIX": _prefix,
    "FENCE_EPOCH": _count,
    "TTL": _seconds,
    "TIMEOUT": _wait,
    "MAX_HOLD": _seconds,
    "TURN": _turn,
    "MAX_NAMES": _count,
    "MAX_WAITERS": _cap,
    "MAX_WAITERS_TOTAL": _cap,
    "ON_BACKEND_DOWN": _on_backend_down,
    "FENCE": _fence,
    "METRICS": _metrics,
    "OPTIONS": _options,
}
