"""One module or folder per lock service, behind the small protocol of `distlock.backends.base`."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from importlib import import_module
from typing import cast

from distlock.backends.base import Backend, Capabilities
from distlock.backends.known import BUILT_IN, Home, home_of, schemes
from distlock.errors import ConfigurationError
from distlock.import_hints import install_hint

#: The arguments of `distlock.connect`. A misspelled one arrives here, as an option of the backend.
_OF_CONNECT = (
    "prefix",
    "ttl",
    "timeout",
    "max_hold",
    "max_waiters",
    "max_waiters_total",
    "on_lost",
    "on_lifted",
    "epoch",
    "turn",
    "backend",
)
#: Schemes that others give to what we have.
_MEANT = {"mariadb": "mysql", "valkey": "redis", "valkeys": "rediss", "zk": "zookeeper"}
#: The methods that every backend has.
_METHODS = [name for name, member in vars(Backend).items() if callable(member) and not name.startswith("_")]


@functools.lru_cache(maxsize=64)
def scheme_of(url: str) -> str:
    """The scheme of *url*; empty where there is none. The rest is the backend's own to read."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", url)
    return found[1].lower() if found else ""


@functools.lru_cache(maxsize=64)
def capabilities_of(scheme: str) -> Capabilities:
    """Return the capabilities that the backend *scheme*, which may be a dotted path, declares.

    Raises `ConfigurationError` as `create` does.
    """
    return class_of(scheme).capabilities


def create(url: str, backend: str | None = None, **options: object) -> Backend:
    """Make the backend that *url* names.

    *backend* is a scheme or a dotted path (``package.module.Class``) where the URL does not say it.
    *options* are the backend's own keyword arguments. Raises `ConfigurationError` for an unknown scheme, a
    missing extra or an unknown option; connects to nothing.
    """
    scheme = backend or scheme_of(url)
    factory = class_of(scheme, url)
    accepted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if unknown := sorted(options.keys() - set(accepted)):
        takes = ", ".join(accepted) or "none"
        close = difflib.get_close_matches(unknown[0].lower(), [*accepted, *_OF_CONNECT], n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise ConfigurationError(
            f"The {scheme} backend has no option {unknown[0]!r}. {hint}It takes: {takes}."
        )
    try:
        # That it takes a URL and options is what the protocol can't say of a class.
        made: Backend = factory(url, **options)  # type: ignore[call-arg]
    except ValueError:
        # The cause would quote the URL, and with it the password.
        raise ConfigurationError(
            f"The URL of the {scheme} backend cannot be read. An address of IPv6 stands in brackets, as in "
            f"{scheme}://[::1]; special characters of a password are written as %XX."
        ) from None
    except TypeError as error:
        path = f"{factory.__module__}.{factory.__qualname__}"
        raise ConfigurationError(f"{path} cannot be made of a URL and options: {error}.") from error
    return made


def class_of(scheme: str, url: str = "") -> type[Backend]:
    """The class of the backend *scheme*, which may be a dotted path, imported.

    *url*: where the scheme comes from, if it does. Raises `ConfigurationError`.
    """
    home = home_of(scheme)
    if home is None:
        raise _unknown(scheme, url)
    module, _, name = home.path.partition(":")
    try:
        found: object = import_module(module)
        for step in name.split("."):
            found = getattr(found, step, None)
    except ImportError as error:
        missing = error.name or error
        raise ConfigurationError(f"The {scheme} backend needs {missing}. {_what_to_do(home)}") from error
    except Exception as error:
        raise ConfigurationError(
            f"The {scheme} backend can't be used: to import {module} raised {error!r}. {_what_to_do(home)}"
        ) from error
    if found is None:
        raise ConfigurationError(f"{module} has no {name!r}. {_what_to_do(home)}")
    return _checked(f"{module}.{name}", found)


def _what_to_do(home: Home) -> str:
    if home.extra is not None:
        return install_hint(home.extra)
    if home.distribution is not None:
        return f"It is the distribution {home.distribution!r} that offers it: repair or uninstall that one."
    return "Check the dotted path of the backend."


def _unknown(scheme: str, url: str) -> ConfigurationError:
    if "database" in {scheme, url}:
        return ConfigurationError(
            "The backend 'database' can't be connected to: its lock is a row, and is held as long as the "
            "transaction of a Django or Flask view. Write it in the settings: "
            'DISTLOCK = {"default": {"BACKEND": "database"}}.'
        )
    known = ", ".join(f"{name}://" for name in schemes())
    if scheme:
        # As SQLAlchemy writes it, a driver stands behind the database.
        bare = scheme.partition("+")[0]
        known_as = (scheme, _MEANT.get(bare, bare))
        close = [one for word in known_as for one in difflib.get_close_matches(word, schemes(), n=1)]
        hint = f" Did you mean {close[0]}://?" if close else ""
        return ConfigurationError(
            f"No lock service is known as {scheme!r}.{hint} Known are {known} or a dotted path."
        )
    return ConfigurationError(
        f"The URL of the lock service has no scheme. Known are {known}, as in redis://localhost:6379/0."
    )


def _checked(path: str, one: object) -> type[Backend]:
    """Raise `ConfigurationError` if *one*, which *path* names, makes no backends."""
    if not isinstance(one, type) or not all(hasattr(one, method) for method in _METHODS):
        raise ConfigurationError(
            f"{path} is no backend of distlock: it is not a class with the methods of "
            "distlock.backends.base.Backend. Those that come with distlock are written as a word: "
            f"{', '.join(BUILT_IN)}."
        )
    if not isinstance(getattr(one, "capabilities", None), Capabilities):
        raise ConfigurationError(
            f"{path} is no backend of distlock: it does not say what it can do. Write 'capabilities = "
            "Capabilities(…)' in its class, with the one of distlock.backends.base."
        )
    return cast("type[Backend]", one)
