"""``LOCATION``, where it is no URL: the Redis that a site has configured already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from distlock.backends.registry import located
from distlock.errors import ConfigurationError
from distlock.web.dotted import imported

#: Gives the client of redis-py with which the cache of that alias writes. Raises `ConfigurationError`.
RedisOf = Callable[[str], Any]

_CACHE = re.compile(r"cache:(?P<alias>[^/]+)(?:/(?P<db>[0-9]{1,9}))?")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def is_elsewhere(location: object) -> bool:
    """Whether *location* says where to look for the URL."""
    if isinstance(location, str):
        return bool(_CACHE.fullmatch(location) or _DOTTED.fullmatch(location))
    return callable(location) or isinstance(location, Mapping) or hasattr(location, "connection_pool")


def shares_database(location: object) -> str | None:
    """The alias of the cache whose database *location* shares; None: it shares none, as far as it says."""
    named = _CACHE.fullmatch(location) if isinstance(location, str) else None
    return named["alias"] if named is not None and named["db"] is None else None


def looked_up(
    location: Any, backend: str | None, options: Mapping[str, Any], redis_of: RedisOf | None
) -> tuple[str, dict[str, Any]]:
    """The URL and the options of an alias that is set to these. Connects to nothing.

    Raises `ConfigurationError`.
    """
    options, db = dict(options), None
    if is_elsewhere(location):
        if isinstance(location, str):
            if (named := _CACHE.fullmatch(location)) is not None:
                if redis_of is None:
                    raise ConfigurationError("LOCATION names a cache, and this site has none.")
                location = redis_of(named["alias"])
                db = None if named["db"] is None else int(named["db"])
            else:
                location = imported(location, "LOCATION, which is no URL,")
        location, found = located(location, backend, db=db)
        options = {**found, **options}
    provider = options.get("credential_provider")
    if isinstance(provider, str):
        options["credential_provider"] = imported(provider, "credential_provider")
    return location, options
