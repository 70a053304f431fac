"""Reads the ``DISTLOCK`` setting into the settings of each alias."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from distlock.backends.base import Capabilities
from distlock.backends.factory import capabilities_of, class_of, scheme_of
from distlock.backends.protocols import LooksAhead
from distlock.errors import ConfigurationError, LockError
from distlock.listening import Listener
from distlock.web.settings.problems import (
    DEFAULT_ALIAS,
    WITHOUT_SERVICE,
    RedisOf,
    by_alias,
    find_problems,
    resolve_location,
)

logger = logging.getLogger("distlock")

CONTENDED_STATUSES = (423, 409, 429, 503)

#: The keys whose values together say where the lock service is. The others are fields of `AliasSettings`.
_WHERE = {"BACKEND", "LOCATION", "OPTIONS"}


@dataclass(frozen=True, slots=True)
class AliasSettings:
    """The settings of one alias, with defaults. `repr` leaves out what may contain a password."""

    alias: str
    location: str = field(repr=False)
    backend: str | None = None
    prefix: str = ""
    fence_epoch: int = 1
    ttl: float = 10.0
    timeout: float = 5.0
    max_hold: float = 60.0
    max_names: int = 32
    max_waiters: int | None = None
    max_waiters_total: int | None = None
    turn: float | None = None
    on_backend_down: str = "refuse"
    fence: bool | str = False
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    metrics: str | Callable[[str], Listener] | None = None

    @property
    def scheme(self) -> str:
        """The name of the lock service: ``redis``, ``file``, …, or a dotted path."""
        return self.backend or scheme_of(self.location)

    @property
    def row_is_lock(self) -> bool:
        """Whether the fence's row is the lock, so that there is no lock service."""
        return self.scheme == "database"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of its backend. Raises `ConfigurationError`."""
        if self.scheme in WITHOUT_SERVICE:
            return WITHOUT_SERVICE[self.scheme]
        try:
            return capabilities_of(self.scheme)
        except ConfigurationError as error:
            raise ConfigurationError(f"DISTLOCK[{self.alias!r}]: {error}") from error

    def refuse_unusable(self) -> None:
        """Raise `ConfigurationError` or `BackendUnavailable` if the alias has a directory that can't be used.

        The first lock would raise the same. Nothing is made in the directory. No server is asked, because the
        settings may be right although the server is down.
        """
        if self.scheme in WITHOUT_SERVICE:
            return
        try:
            backend = class_of(self.scheme)
            if issubclass(backend, LooksAhead):
                backend.refuse_unusable(self.location)
        except LockError as error:
            raise type(error)(f"DISTLOCK[{self.alias!r}]: {error}") from error

    def warn_if_alone(self) -> None:
        """Log a warning if the locks of this alias keep no other process out. Not called in debug mode."""
        if self.capabilities.several_processes:
            return
        why = "it keeps nobody out" if self.scheme == "dummy" else "each process has locks of its own"
        logger.warning(
            "DISTLOCK[%r] uses the %s backend outside of debug mode: %s. Write a lock service that all "
            'servers share, for example "LOCATION": "redis://localhost:6379/0", or '
            '"file:///var/lib/shop/locks" if there is only one host.',
            self.alias,
            self.scheme,
            why,
        )


class Aliases(Mapping[str, AliasSettings]):
    """The settings by alias. Each location is looked up on first use, so a wrong one stops no other alias."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]], redis_of: RedisOf | None) -> None:
        self._given = given
        self._redis_of = redis_of
        self._made: dict[str, AliasSettings] = {}

    def __getitem__(self, alias: str) -> AliasSettings:
        """Return the settings of *alias*. Looks its location up on first use, and connects to nothing.

        Raises KeyError if there is no such alias; `ConfigurationError` if its location can't be found.
        """
        if alias not in self._made:
            self._made[alias] = _settings(alias, self._given[alias], self._redis_of)
        return self._made[alias]

    def __contains__(self, alias: object) -> bool:
        return alias in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def read(setting: object, redis_of: RedisOf | None = None, *, name: str = "DISTLOCK") -> Aliases:
    """Return the settings of each alias that *setting* describes. *name* is what messages call the setting.

    *redis_of*: see `RedisOf`; None: the site has no caches. Raises `ConfigurationError` with the first
    problem.
    """
    refuse_problems(setting, name=name)
    given = by_alias(setting)
    assert given is not None
    return Aliases(given, redis_of)


def without_settings(debug: bool) -> dict[str, AliasSettings]:
    """Return the settings of a site without ``DISTLOCK``: locks are files of this host. Log a warning.

    The directory is ``$XDG_STATE_HOME/distlock`` (``~/.local/state/distlock``), one per user. Below ``/tmp``
    each service of the host may see a directory of its own, so that two processes could hold one lock. Raises
    `ConfigurationError` outside of debug mode.
    """
    if not debug:
        raise ConfigurationError(
            "DISTLOCK is not configured. Say which lock service all servers of this site share, for example "
            'DISTLOCK = {"default": {"LOCATION": "redis://localhost:6379/0"}}, or '
            '"file:///var/lib/shop/locks" if there is only one host.'
        )
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigurationError(
            "DISTLOCK is not configured, and this user has no home directory."
        ) from error
    location = (Path(home).absolute() / "distlock").as_uri()
    logger.warning(
        "DISTLOCK is not configured: locks are kept in %s and hold on this host only. "
        "Without debug mode this is an error.",
        location,
    )
    return {DEFAULT_ALIAS: AliasSettings(DEFAULT_ALIAS, location)}


def refuse_problems(setting: object, *, name: str = "DISTLOCK") -> None:
    """Raise `ConfigurationError` with the first problem of *setting*. Looks no location up."""
    for problem in find_problems(setting, name=name):
        raise ConfigurationError(str(problem))


def contended_status(value: object) -> int:
    """Return *value* of ``DISTLOCK_CONTENDED_STATUS``, the status if the lock stays taken.

    Raises `ConfigurationError`.
    """
    if isinstance(value, bool) or value not in CONTENDED_STATUSES:
        allowed = ", ".join(map(str, CONTENDED_STATUSES))
        raise ConfigurationError(f"DISTLOCK_CONTENDED_STATUS is {value!r}. Allowed are {allowed}.")
    assert isinstance(value, int)
    return value


def switch(name: str, value: object) -> bool:
    """Return *value* of the setting *name* if it is a bool. Raises `ConfigurationError`."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}. Write True or False.")
    return value


def _settings(alias: str, given: Mapping[str, Any], redis_of: RedisOf | None) -> AliasSettings:
    backend = given.get("BACKEND")
    location, options = given.get("LOCATION"), given.get("OPTIONS", {})
    # Beside LOCATION only a dotted path counts: the scheme says more than 'redis', for example rediss://.
    dotted = backend if backend and "." in backend else None
    if backend == "database":
        given = {**given, "FENCE": location or True}
    if backend not in WITHOUT_SERVICE:
        try:
            location, options = resolve_location(location, dotted, options, redis_of)
        except ConfigurationError as error:
            raise ConfigurationError(f"DISTLOCK[{alias!r}]: {error}") from error
    return AliasSettings(
        alias=alias,
        location=f"{backend}://" if backend in WITHOUT_SERVICE else location or f"{backend}://",
        backend=dotted,
        options=MappingProxyType(dict(options)),
        **{key.lower(): value for key, value in given.items() if key not in _WHERE},
    )
