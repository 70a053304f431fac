"""One module or folder per lock service, behind the small protocol of `distlock.backends.base`."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from importlib import import_module

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

#: What `distlock.connect` takes itself. Misspelled it arrives here, as an option of the backend.
_OF_CONNECT = (
    "prefix",
    "ttl",
    "timeout",
    "max_hold",
    "max_waiters",
    "max_waiters_total",
    "on_lost",
    "on_lifted",
)
#: The methods that every backend has.
_METHODS = [name for name, member in vars(Backend).items() if callable(member) and not name.startswith("_")]


@functools.lru_cache(maxsize=64)
def scheme_of(url: str) -> str:
    """The scheme of *url*; empty where there is none. The rest is the backend's own to read."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", url)
    return found[1].lower() if found else ""


def create(url: str, backend: str | None = None, **options: object) -> Backend:
    """Make the backend that *url* names.

    *backend* is a scheme or a dotted path (``package.module.Class``) where the URL does not say it.
    *options* are the backend's own keyword arguments. Raises `ConfigurationError` for an unknown scheme, a
    missing extra or an unknown option; connects to nothing.
    """
    scheme = backend or scheme_of(url)
    if scheme in SCHEMES:
        path, extra = SCHEMES[scheme]
    elif "." in scheme:
        path, extra = ":".join(scheme.rsplit(".", 1)), None
    elif "database" in {scheme, url}:
        raise ConfigurationError(
            "The backend 'database' can't be connected to: its lock is a row, and is held as long as the "
            "transaction of a Django or Flask view. Write it in the settings: "
            'DISTLOCK = {"default": {"BACKEND": "database"}}.'
        )
    else:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ConfigurationError(
            f"No lock service is known as {scheme!r}. Known are {known} or a dotted path."
            if scheme
            else f"The URL of the lock service has no scheme. Known are {known}, as in redis://localhost:6379/0."
        )
    module, _, name = path.partition(":")
    try:
        factory = getattr(import_module(module), name)
    except ImportError as error:
        what_to_do = remedy(extra) if extra else "Check the dotted path."
        raise ConfigurationError(f"The {scheme} backend needs {error.name or error}. {what_to_do}") from error
    except AttributeError as error:
        raise ConfigurationError(f"{module} has no {name}: check the dotted path of the backend.") from error
    _refuse_other(path, factory)
    accepted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if unknown := sorted(options.keys() - set(accepted)):
        takes = ", ".join(accepted) or "none"
        close = difflib.get_close_matches(unknown[0], [*accepted, *_OF_CONNECT], n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise ConfigurationError(
            f"The {scheme} backend has no option {unknown[0]!r}. {hint}It takes: {takes}."
        )
    try:
        made: Backend = factory(url, **options)
    except ValueError:
        # The cause would quote the URL, and with it the password.
        raise ConfigurationError(
            f"The URL of the {scheme} backend cannot be read. An address of IPv6 stands in brackets, as in "
            f"{scheme}://[::1]; special characters of a password are written as %XX."
        ) from None
    except TypeError as error:
        raise ConfigurationError(f"{path} cannot be made of a URL and options: {error}.") from error
    return made


def _refuse_other(path: str, one: object) -> None:
    """Raise `ConfigurationError` if *one*, which *path* names, makes no backends."""
    if not isinstance(one, type) or not all(hasattr(one, method) for method in _METHODS):
        raise ConfigurationError(
            f"{path.replace(':', '.')} is no backend of distlock: it is not a class with the methods of "
            f"distlock.backends.base.Backend. Those that come with distlock are written as a word: "
            f"{', '.join(SCHEMES)}."
        )
