"""The Redis that Flask-Caching has, for a ``LOCATION`` of ``cache:default``."""

from __future__ import annotations

from typing import Any

from flask import Flask

from distlock.errors import ConfigurationError
from flask_distlock.private import redis_that_writes


def redis_of(app: Flask, alias: str) -> Any:
    """The client of redis-py with which the cache of *app* writes. Flask-Caching knows one, without a name.

    Raises `ConfigurationError` where there is none, or several are.
    """
    if alias != "default":
        raise ConfigurationError(f"Flask-Caching has no aliases such as {alias!r}: write 'cache:default'.")
    caches = list(app.extensions.get("cache", {}).values())
    if len(caches) != 1:
        raise ConfigurationError(
            f"The app {app.name!r} has {len(caches)} caches of Flask-Caching, and 'cache:default' means the "
            "only one. Call Cache.init_app() before the first request, or let LOCATION be a client of "
            "redis-py."
        )
    found = redis_that_writes(caches[0])
    if found is None:
        raise ConfigurationError(
            f"CACHE_TYPE of {app.name!r} is {type(caches[0]).__name__}, which keeps nothing in Redis. Let it "
            "be RedisCache, or write a URL."
        )
    return found
