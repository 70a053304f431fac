"""Making a backend from a site's configuration: a URL, a scheme, a dotted path or a client."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from distlock.backends.base import Backend, Capabilities
from distlock.backends.known import BUILT_IN, Home, home_of, schemes
from distlock.backends.protocols import TakesArguments
from distlock.errors import ConfigurationError
from distlock.suggestions import install_hint

#: The arguments of `distlock.connect`. If one is misspelt, `create` gets it as an option of the backend.
_OF_CONNECT = (
    *("prefix", "ttl", "timeout", "max_hold", "max_waiters", "max_waiters_total"),
    *("on_lost", "on_lifted", "on_release_requested", "listener", "epoch", "turn", "backend"),
)
#: Words that users write for our schemes, and the scheme that the error proposes.
_MEANT = {"mariadb": "mysql", "valkey": "redis", "valkeys": "rediss", "zk": "zookeeper"}
#: The methods that every backend has.
_METHODS = [name for name, member in vars(Backend).items() if callable(member) and not name.startswith("_")]


@functools.lru_cache(maxsize=64)
def scheme_of(url: str) -> str:
    """Return the scheme of *url*, or "" if it has none. The backend reads the rest."""
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

    *backend*: a scheme or a dotted path (``package.module.Class``); None: the URL's scheme. *options*: the
    backend's own keyword arguments. Connects to nothing. Raises `ConfigurationError`, for example for an
    unknown scheme, a missing extra, an unknown option or an unreadable URL.
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
        # The protocol can't declare that a class takes a URL and options.
        made: Backend = factory(url, **options)  # type: ignore[call-arg]
    except ValueError:
        # The cause would quote the URL with its password.
        raise ConfigurationError(
            f"The URL of the {scheme} backend cannot be read. An address of IPv6 stands in brackets, as in "
            f"{scheme}://[::1]; special characters of a password are written as %XX."
        ) from None
    except TypeError as error:
        path = f"{factory.__module__}.{factory.__qualname__}"
        raise ConfigurationError(f"{path} cannot be made of a URL and options: {error}.") from error
    return made


def class_of(scheme: str, url: str = "") -> type[Backend]:
    """Import the class of the backend *scheme*, which may be a dotted path.

    *url*: the URL with the scheme, if any, for errors. Raises `ConfigurationError`.
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
        # In SQLAlchemy's URLs the driver follows the database, as in mysql+pymysql.
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
    """Return *one*, the object at *path*. Raise `ConfigurationError` if it is no class of a backend."""
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


class Pooled(Protocol):
    """A client of redis-py, sync or async."""

    connection_pool: Any


Place = str | Pooled | Mapping[str, Any]
Location = Place | Callable[[], Place]


def located(
    location: Location, backend: str | None = None, *, db: int | None = None
) -> tuple[str, dict[str, object]]:
    """Return the URL and the options of *location*. Connects to nothing.

    *location*: a URL; a client of redis-py, which is only read; a dict of that library's arguments; or a
    function without arguments that returns one of these. *backend*: see `distlock.connect`. *db*: another
    database of that server, unless the location is a URL. Raises `ConfigurationError`.
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
