"""The Redis that ``CACHES`` configures, for a ``LOCATION`` of ``cache:default``."""

from __future__ import annotations

from typing import Any

from django.core.cache import InvalidCacheBackendError, caches
from django.core.exceptions import ImproperlyConfigured

from distlock.errors import ConfigurationError
from django_distlock.private_of_others import redis_that_writes


def redis_of(alias: str) -> Any:
    """The client of redis-py with which the cache *alias* writes. It connects to nothing.

    Raises `ConfigurationError` where there is none.
    """
    try:
        cache = caches[alias]
        found = redis_that_writes(cache)
    except (InvalidCacheBackendError, ImproperlyConfigured, ImportError) as error:
        raise ConfigurationError(f"CACHES[{alias!r}] can't be made: {error}") from error
    except NotImplementedError:
        found = None  # It spreads its keys over several servers.
    except Exception as error:
        # The error may quote a password, as those about unreadable URLs do.
        raise ConfigurationError(
            f"CACHES[{alias!r}] can't be made ({type(error).__name__}): correct its LOCATION and OPTIONS."
        ) from None
    if found is None:
        kind = type(cache)
        raise ConfigurationError(
            f"CACHES[{alias!r}] is {kind.__module__}.{kind.__qualname__}, which does not write to one Redis "
            "server. Name one of django.core.cache.backends.redis or of django_redis, or write a URL."
        )
    return found
