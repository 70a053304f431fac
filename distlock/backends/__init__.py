"""One module or folder per lock service, behind the small protocol of `distlock.backends.base`."""

from __future__ import annotations

import inspect
from importlib import import_module
from urllib.parse import urlsplit

from distlock.backends.base import Backend
from distlock.errors import ConfigurationError
from distlock.extras import remedy

#: URL scheme -> where its backend lives, and the extra that brings what it needs.
SCHEMES = {
    "memory": ("distlock.backends.memory:MemoryBackend", None),
    "file": ("distlock.backends.file:FileBackend", None),
    "redis": ("distlock.backends.redis:RedisBackend", "redis"),
    "rediss": ("distlock.backends.redis:RedisBackend", "redis"),
    "unix": ("distlock.backends.redis:RedisBackend", "redis"),
    "zookeeper": ("distlock.backends.zookeeper:ZooKeeperBackend", "zookeeper"),
}


def create(url: str, backend: str | None = None, **options: object) -> Backend:
    """Make the backend that *url* names.

    *backend* is a scheme or a dotted path (``package.module.Class``) where the URL does not say it.
    *options* are the backend's own keyword arguments. Raises `ConfigurationError` for an unknown scheme, a
    missing extra or an unknown option; connects to nothing.
    """
    scheme = backend or urlsplit(url).scheme
    if scheme in SCHEMES:
        path, extra = SCHEMES[scheme]
    elif "." in scheme:
        path, extra = ":".join(scheme.rsplit(".", 1)), None
    elif scheme == "database":
        raise ConfigurationError(
            "The backend 'database' can't be connected to: its lock is a row, and is held as long as the "
            "transaction of a Django or Flask view. Write it in the settings: "
            'DISTLOCK = {"default": {"BACKEND": "database"}}.'
        )
    else:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ConfigurationError(
            f"No lock service is known as {scheme!r}. Known are {known} or a dotted path."
        )
    module, _, name = path.partition(":")
    try:
        factory = getattr(import_module(module), name)
    except ImportError as error:
        what_to_do = remedy(extra) if extra else "Check the dotted path."
        raise ConfigurationError(f"The {scheme} backend needs {error.name or error}. {what_to_do}") from error
    except AttributeError as error:
        raise ConfigurationError(f"{module} has no {name}: check the dotted path of the backend.") from error
    accepted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if unknown := sorted(options.keys() - set(accepted)):
        takes = ", ".join(accepted) or "none"
        raise ConfigurationError(f"The {scheme} backend has no option {unknown[0]!r}. It takes: {takes}.")
    made: Backend = factory(url, **options)
    return made
