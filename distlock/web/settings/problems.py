"""What is wrong with the ``DISTLOCK`` setting, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from distlock.backends.known import home_of
from distlock.backends.registry import scheme_of
from distlock.errors import ConfigurationError
from distlock.web.settings.locations import is_elsewhere, shares_database
from distlock.web.settings.values import CHECKS, serving

DEFAULT_ALIAS = "default"
SETTINGS = (
    "DISTLOCK",
    "DISTLOCK_RULES",
    "DISTLOCK_CONTENDED_STATUS",
    "DISTLOCK_SERVER_TIMING",
    "DISTLOCK_KEEP_CONNECTIONS",
    "DISTLOCK_REFRESH_SESSION",
    "DISTLOCK_BODY_BEFORE_LOCK",
    "DISTLOCK_BATCH_MAX_BODY",
    "DISTLOCK_STALE_WRITES",
    "DISTLOCK_REFRESH_USER",
)

#: Other packages' words for these settings.
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

#: Keys that have no meaning where the lock is a row of the database, and why.
_MEANINGLESS = {
    "TTL": "a row has no lifetime: it is locked until COMMIT or ROLLBACK",
    "MAX_HOLD": "a row is locked until COMMIT or ROLLBACK: let the database end transactions that hang",
    "ON_BACKEND_DOWN": "without its database no view can run",
    "OPTIONS": "it has none",
}


Kind = Literal["shape", "backend", "key", "value"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a setting: what, and what to do."""

    kind: Kind
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


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
    """Yield settings whose names are almost ours: a view that only they would lock runs unlocked."""
    for name in names:
        close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.9)
        if close and name not in SETTINGS:
            yield Problem("key", f"The setting {name} is not read.", f"Did you mean {close[0]}?")


def uncapped(setting: object) -> Iterator[Problem]:
    """The aliases of *setting*, which is well-formed, that leave open how many threads may wait.

    None in the place of a number says that this is meant.
    """
    for alias, given in (by_alias(setting) or {}).items():
        if _locks(given) and "MAX_WAITERS_TOTAL" not in given:
            yield Problem(
                "value",
                f"DISTLOCK[{alias!r}] has no MAX_WAITERS_TOTAL: a rush for one name may take all threads of "
                "a server process, and requests for other names then wait in the server's own queue.",
                'Write half of the threads of one server process: "MAX_WAITERS_TOTAL": 8 with 16 threads. '
                "None says that no thread has to stay free.",
            )


def shared_with_caches(setting: object) -> Iterator[Problem]:
    """The aliases of *setting*, which is well-formed, whose locks end when a cache is cleared."""
    for alias, given in (by_alias(setting) or {}).items():
        cache = shares_database(given.get("LOCATION"))
        if cache is not None and _locks(given):
            yield Problem(
                "value",
                f"DISTLOCK[{alias!r}] keeps its locks in the database of the cache {cache!r}: its clear() "
                "empties that, and frees every lock.",
                f'Name another database of that server: "LOCATION": "cache:{cache}/1".',
            )


def by_alias(setting: object) -> Mapping[Any, Any] | None:
    """Return the value of *setting* for each alias; None if it has no such shape."""
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
        for message, hint in _meaningless(where, given):
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
        example = _example(backend)
        if example != f"{backend}://":
            yield Problem(
                "backend",
                f"{where} has no LOCATION.",
                f'Say where the lock service is: "LOCATION": "{example}".',
            )
        return
    if is_elsewhere(location):
        if backend and backend != "redis" and "." not in backend:
            yield Problem(
                "backend",
                f"{where} has the BACKEND {backend!r} and a LOCATION that is no URL.",
                "Leave BACKEND out: what LOCATION leads to says it.",
            )
        return
    scheme = scheme_of(location)
    if "://" not in location:
        yield Problem(
            "backend",
            f"{where}['LOCATION'] is no URL.",
            f'Write it with its scheme, for example "{_example(backend)}".'
            + (' The Redis of a cache is "cache:default".' if scheme == "cache" else ""),
        )
    elif backend and _differ(backend, scheme):
        yield Problem(
            "backend",
            f"{where} has the BACKEND {backend!r} and a LOCATION that starts with '{scheme}://'.",
            "Leave BACKEND out: the scheme of LOCATION says it.",
        )


def _meaningless(where: str, given: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of the alias *where*, whose backend is ``database``, with their remedies."""
    for key, why in _MEANINGLESS.items():
        if given.get(key):
            yield f"{where} has {key}, and the backend 'database' has not.", f"Leave it out: {why}."
    location = given.get("LOCATION")
    if not isinstance(location, str | None) or "://" in (location or ""):
        yield (
            f"{where} keeps its locks in the site's own database, and its LOCATION is none.",
            'Write "BACKEND": "database", and as LOCATION the name of that database, if it has one.',
        )
    if given.get("FENCE", True) not in {True, location}:
        yield (
            f"{where} has the backend 'database' and FENCE.",
            "Leave FENCE out: the fence's row is the lock, in the database that LOCATION names.",
        )


def _example(backend: str | None) -> str:
    """A LOCATION for *backend*: a bare scheme where it needs none."""
    home = home_of(backend) if backend else None
    return (home and home.example) or "redis://localhost:6379/0"


def _differ(backend: str, scheme: str) -> bool:
    """Whether two things serve these two, as far as they are known. A dotted path takes any scheme."""
    if "." in f"{backend}{scheme}":
        return False
    try:
        one, other = serving(backend), serving(scheme)
    except ConfigurationError:
        return False  # It is told when the client is made.
    return None not in {one, other} and one != other


def _shown(key: str, value: object) -> str:
    """Numbers and the like are worth showing; what may hold a password is not."""
    if key in {"LOCATION", "OPTIONS", "BACKEND"} or not isinstance(value, str | int | float | None):
        return f"a {type(value).__name__}" if not isinstance(value, str) else "not usable"
    return repr(value)


def _locks(given: Mapping[str, Any]) -> bool:
    return "dummy" not in (given.get("BACKEND"), str(given.get("LOCATION")).partition(":")[0])
