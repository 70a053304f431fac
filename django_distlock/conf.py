"""The settings, read when they are needed, so that `override_settings` works."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.cache import InvalidCacheBackendError, caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from distlock.errors import ConfigurationError
from distlock.web.body_before_lock import DEFAULTS, size_setting
from distlock.web.settings.aliases import AliasSettings, contended_status, read, switch, without_settings
from distlock.web.settings.clients import Clients
from distlock.web.stale_writes import SETTING as STALE_WRITES
from django_distlock.clients.client import make, make_standby
from django_distlock.fresh.stale_writes import follow_settings
from django_distlock.guarding.fence import database_of
from django_distlock.private_of_others import redis_that_writes

logger = logging.getLogger("distlock")


def _read() -> Mapping[str, AliasSettings]:
    # If the app is not installed, its ready() has not called this.
    follow_settings()
    setting = getattr(settings, "DISTLOCK", None)
    return without_settings(settings.DEBUG) if setting is None else read(setting, redis_of)


clients = Clients(_read, make, make_standby, database_of, "python manage.py distlock")


# The settings below are cached: Django raises two exceptions for each look at a setting that is missing.
@functools.cache
def status() -> int:
    """Return the HTTP status of the response to a request that did not get its lock in time."""
    return contended_status(getattr(settings, "DISTLOCK_CONTENDED_STATUS", 423))


@functools.cache
def server_timing() -> bool:
    """Return whether responses get the header ``Server-Timing``."""
    return bool(getattr(settings, "DISTLOCK_SERVER_TIMING", False))


@functools.cache
def refreshes_session() -> bool:
    """Return whether guards read the session again if their lock keeps the requests of a session apart."""
    return switch("DISTLOCK_REFRESH_SESSION", getattr(settings, "DISTLOCK_REFRESH_SESSION", True))


@functools.cache
def refreshes_user() -> bool:
    """Return whether guards compare ``request.user`` with its row once they have the lock."""
    return switch("DISTLOCK_REFRESH_USER", getattr(settings, "DISTLOCK_REFRESH_USER", True))


@functools.cache
def body_size(name: str) -> int:
    """Return the setting *name*: the largest body, in bytes, that is read before the lock.

    *name* is a key of `distlock.web.body_before_lock.DEFAULTS`.
    """
    return size_setting(name, getattr(settings, name, DEFAULTS[name]))


@functools.cache
def warn_without_checks() -> None:
    """Log a warning, once, if the app is not installed: 'manage.py check' then leaves out its checks."""
    if apps.ready and not apps.is_installed("django_distlock"):
        logger.warning(
            "django_distlock is not in INSTALLED_APPS, so that 'manage.py check' does not look over the "
            'locked views. Add: INSTALLED_APPS += ["django_distlock"]'
        )


#: The dotted path of the middleware, as sites write it into ``MIDDLEWARE``.
MIDDLEWARE = "django_distlock.middleware.DistlockMiddleware"


def refuse_without_middleware() -> None:
    """Raise `ConfigurationError` if a setting needs the middleware, and ``MIDDLEWARE`` lacks it."""
    wanted = [name for name in ("DISTLOCK_RULES", "DISTLOCK_SERVER_TIMING") if getattr(settings, name, None)]
    if wanted and not _has_middleware():
        raise ConfigurationError(
            f"{wanted[0]} is set, but the middleware that applies it is missing: add {MIDDLEWARE!r} to "
            "MIDDLEWARE."
        )


def _has_middleware() -> bool:
    if MIDDLEWARE in settings.MIDDLEWARE:
        return True
    ours = import_string(MIDDLEWARE)
    others = map(import_string, settings.MIDDLEWARE)
    return any(isinstance(other, type) and issubclass(other, ours) for other in others)


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting in {"DISTLOCK", "DEBUG", "CACHES"}:
        clients.reset()
    if setting in {"DEBUG", STALE_WRITES}:
        follow_settings()
    for cached in (status, server_timing, refreshes_session, body_size, refreshes_user):
        cached.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_distlock")


def redis_of(alias: str) -> Any:
    """Return the redis-py client with which the cache *alias* writes. Does not connect.

    Raises `ConfigurationError` if the cache can't be made, or does not write to one Redis server.
    """
    try:
        cache = caches[alias]
        found = redis_that_writes(cache)
    except (InvalidCacheBackendError, ImproperlyConfigured, ImportError) as error:
        raise ConfigurationError(f"CACHES[{alias!r}] can't be made: {error}") from error
    except NotImplementedError:
        found = None  # The cache spreads its keys over several servers.
    except Exception as error:
        # The error may quote a password, as errors about unreadable URLs do.
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
