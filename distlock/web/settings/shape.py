"""The ``DISTLOCK`` setting: its shape, its defaults, and what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from distlock.backends import scheme_of
from distlock.errors import ConfigurationError
from distlock.web.settings import database as database_setting
from distlock.web.settings.values import BACKENDS, CHECKS

DEFAULT_ALIAS = "default"
CONTENDED_STATUSES = (423, 409, 429, 503)
SETTINGS = (
    "DISTLOCK",
    "DISTLOCK_RULES",
    "DISTLOCK_CONTENDED_STATUS",
    "DISTLOCK_SERVER_TIMING",
    "DISTLOCK_KEEP_CONNECTIONS",
)

#: What the words are called elsewhere.
_SYNONYMS = {
    "KEY_PREFIX": "PREFIX",
    "URL": "LOCATION",
    "HOST": "LOCATION",
    "WAIT": "TIMEOUT",
    "BLOCKING_TIMEOUT": "TIMEOUT",
    "EXPIRE": "TTL",
    "LEASE": "TTL",
    "ENGINE": "BACKEND",
}

Kind = Literal["shape", "backend", "key", "value"]


@dataclass(frozen=True, slots=True)
class AliasSettings:
    """One alias of the setting, complete. URLs and options may hold passwords: neither is ever printed."""

    alias: str
    location: str = field(repr=False)
    backend: str | None = None
    prefix: str = ""
    era: int = 1
    ttl: float = 10.0
    timeout: float = 5.0
    max_hold: float = 60.0
    max_names: int = 32
    max_waiters: int | None = None
    max_waiters_total: int | None = None
    on_backend_down: str = "refuse"
    fence: bool | str = False
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @property
    def scheme(self) -> str:
        """What the lock service is called: ``redis``, ``file``, …, or a dotted path."""
        return self.backend or scheme_of(self.location)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a setting: what, and what to do."""

    kind: Kind
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


def read(setting: object, *, name: str = "DISTLOCK") -> dict[str, AliasSettings]:
    """Return the settings of each alias that *setting* describes. *name* is what messages call the setting.

    Raises `ConfigurationError` with the first problem.
    """
    for problem in find_problems(setting, name=name):
        raise ConfigurationError(str(problem))
    given = by_alias(setting)
    assert given is not None
    return {alias: _settings(alias, one) for alias, one in given.items()}


def find_problems(setting: object, *, name: str = "DISTLOCK") -> Iterator[Problem]:
    """Everything that is wrong with *setting*."""
    if (problem := _shape_problem(setting, name)) is not None:
        yield problem
        return
    for alias, given in (by_alias(setting) or {}).items():
        where = f"{name}[{alias!r}]"
        if not isinstance(alias, str) or not alias:
            yield Problem("shape", f"{name} has the alias {alias!r}.", "Aliases are text, such as 'default'.")
            continue
        if not isinstance(given, Mapping):
            yield Problem(
                "shape",
                f"{where} is a {type(given).__name__}, not a dict.",
                f'Write {name} = {{{alias!r}: {{"LOCATION": "redis://localhost:6379/0"}}}}.',
            )
            continue
        problems = [*_unknown_keys(where, given), *_wrong_values(where, given)]
        yield from problems
        if not problems:
            yield from _contradictions(where, given)


def misspelled(names: Iterable[str]) -> Iterator[Problem]:
    """Those of a site's settings that are almost ours: a view that only they would lock runs unlocked."""
    for name in names:
        close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.9)
        if close and name not in SETTINGS:
            yield Problem("key", f"The setting {name} is not read.", f"Did you mean {close[0]}?")


def contended_status(value: object) -> int:
    """Check ``DISTLOCK_CONTENDED_STATUS``: the status of an answer to a request that found the lock taken."""
    if isinstance(value, bool) or value not in CONTENDED_STATUSES:
        allowed = ", ".join(map(str, CONTENDED_STATUSES))
        raise ConfigurationError(f"DISTLOCK_CONTENDED_STATUS is {value!r}. Allowed are {allowed}.")
    assert isinstance(value, int)
    return value


def by_alias(setting: object) -> Mapping[Any, Any] | None:
    """What *setting* gives each alias; None: it has no such shape."""
    if isinstance(setting, str):
        return {DEFAULT_ALIAS: {"LOCATION": setting}}
    return setting if isinstance(setting, Mapping) else None


def _shape_problem(setting: object, name: str) -> Problem | None:
    example = f'{name} = {{"default": {{"LOCATION": "redis://localhost:6379/0"}}}}'
    if isinstance(setting, str):
        if setting:
            return None
        return Problem("shape", f"{name} is empty.", f"Write {example}.")
    if not isinstance(setting, Mapping):
        return Problem("shape", f"{name} is a {type(setting).__name__}, not a dict.", f"Write {example}.")
    if DEFAULT_ALIAS in setting:
        return None
    flat = [key for key in setting if key in CHECKS]
    if flat:
        return Problem(
            "shape",
            f"{name} has {flat[0]!r} where an alias is expected.",
            f'Put everything one level deeper: {name} = {{"default": {{{flat[0]!r}: …}}}}.',
        )
    return Problem("shape", f"{name} has no alias 'default'.", f"Write {example}.")


def _unknown_keys(where: str, given: Mapping[Any, Any]) -> Iterator[Problem]:
    for key in given:
        if key in CHECKS:
            continue
        upper = key.upper() if isinstance(key, str) else ""
        close = difflib.get_close_matches(upper, CHECKS, n=1)
        meant = _SYNONYMS.get(upper) or (close[0] if close else None)
        hint = f"Did you mean {meant!r}?" if meant else f"Known are {', '.join(CHECKS)}."
        if meant is None:
            hint += " What only the backend knows belongs into OPTIONS."
        yield Problem("key", f"{where} has an unknown key {key!r}.", hint)


def _wrong_values(where: str, given: Mapping[Any, Any]) -> Iterator[Problem]:
    for key, check in CHECKS.items():
        if key in given and (hint := check(given[key])) is not None:
            yield Problem("value", f"{where}[{key!r}] is {_shown(key, given[key])}.", hint)


def _contradictions(where: str, given: Mapping[Any, Any]) -> Iterator[Problem]:
    backend, location = given.get("BACKEND"), given.get("LOCATION")
    if backend == "dummy":
        return  # Locking is switched off with one key, and nobody asks where it would be.
    if backend == "database" or str(location).startswith("database:"):
        for message, hint in database_setting.contradictions(where, given):
            yield Problem("backend", message, hint)
        return
    if given.get("ON_BACKEND_DOWN") == "run" and not given.get("FENCE"):
        yield Problem(
            "value",
            f"{where}['ON_BACKEND_DOWN'] is 'run', and without a fence nobody would keep the views apart.",
            'Write "FENCE": True, or leave ON_BACKEND_DOWN out: no lock, no view.',
        )
    if not backend and not location:
        yield Problem(
            "backend",
            f"{where} does not say which lock service to use.",
            'Add "LOCATION", for example "redis://localhost:6379/0".',
        )
        return
    if location is None:
        if backend != "memory":
            yield Problem(
                "backend",
                f"{where} has no LOCATION.",
                f'Say where the lock service is: "LOCATION": "{_example(backend)}".',
            )
        return
    scheme = scheme_of(location)
    if "://" not in location:
        yield Problem(
            "backend",
            f"{where}['LOCATION'] is no URL.",
            f'Write it with its scheme, for example "{_example(backend)}".',
        )
    elif backend in BACKENDS and scheme in BACKENDS and BACKENDS[backend] != BACKENDS[scheme]:
        yield Problem(
            "backend",
            f"{where} has the BACKEND {backend!r} and a LOCATION that starts with '{scheme}://'.",
            "Leave BACKEND out: the scheme of LOCATION says it.",
        )


def _settings(alias: str, given: Mapping[str, Any]) -> AliasSettings:
    backend = given.get("BACKEND")
    location = given.get("LOCATION")
    if backend == "database":
        given = {**given, "FENCE": location or True}
    return AliasSettings(
        alias=alias,
        location=f"{backend}://" if backend in _PLACELESS else location or f"{backend}://",
        # A scheme that LOCATION says already ('rediss') knows more than the word 'redis'.
        backend=backend if backend and "." in backend else None,
        options=MappingProxyType(dict(given.get("OPTIONS", {}))),
        **{key.lower(): given[key] for key in given if key.lower() in _PLAIN},
    )


def _example(backend: object) -> str:
    return "file:///var/lib/shop/locks" if backend == "file" else "redis://localhost:6379/0"


def _shown(key: str, value: object) -> str:
    """Numbers and the like are worth showing; what may hold a password is not."""
    if key in {"LOCATION", "OPTIONS", "BACKEND"} or not isinstance(value, str | int | float | None):
        return f"a {type(value).__name__}" if not isinstance(value, str) else "not usable"
    return repr(value)


_PLAIN = {
    "era",
    "fence",
    "max_hold",
    "max_names",
    "max_waiters",
    "max_waiters_total",
    "on_backend_down",
    "prefix",
    "timeout",
    "ttl",
}
#: Words whose LOCATION is no URL of a lock service.
_PLACELESS = {"dummy", "database"}
