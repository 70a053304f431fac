"""What may be in the ``DISTLOCK`` setting, and the problems of what is in it, with their remedies."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from distlock.backends.base import Capabilities
from distlock.backends.factory import located, scheme_of
from distlock.backends.known import home_of, schemes
from distlock.errors import ConfigurationError
from distlock.metrics import KINDS
from distlock.names import check_prefix
from distlock.numbers import A_COUNT, MOST_SECONDS, a_number_of_seconds, is_count, is_seconds


def imported(path: str, what: str) -> Any:
    """Import and return the object at *path*; messages call it *what*. Raises `ConfigurationError`."""
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{what} is {path!r}, which can't be imported: {error}") from error


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

#: Keys that have no meaning if the lock is a row of the database, and why.
_MEANINGLESS = {
    "TTL": "a row has no lifetime: it is locked until COMMIT or ROLLBACK",
    "MAX_HOLD": "a row is locked until COMMIT or ROLLBACK: let the database end transactions that hang",
    "ON_BACKEND_DOWN": "without its database no view can run",
    "OPTIONS": "it has none",
}


Kind = Literal["shape", "backend", "key", "value"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a setting, and its remedy."""

    kind: Kind
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


def find_problems(setting: object, *, name: str = "DISTLOCK") -> Iterator[Problem]:
    """Yield the problems of *setting*. Keys of an alias are compared only if each is right by itself."""
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
    """Yield a problem for each of *names*, names of settings, that is most likely a misspelt one of ours."""
    for name in names:
        close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.9)
        if close and name not in SETTINGS:
            yield Problem("key", f"The setting {name} is not read.", f"Did you mean {close[0]}?")


def uncapped(setting: object) -> Iterator[Problem]:
    """Yield a problem for each alias of *setting* without MAX_WAITERS_TOTAL. An explicit None is fine.

    *setting* has no other problems.
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
    """Yield a problem for each alias of *setting* whose locks end when a cache is cleared.

    *setting* has no other problems.
    """
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
    """Return *setting* by alias: a str is the LOCATION of the default one. None: it is no mapping, either."""
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
        return  # Locking is switched off, so the other keys do not matter.
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
    if is_indirect(location):
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
    """Return an example of LOCATION for *backend*; only its scheme, as ``memory://``, if that is enough."""
    home = home_of(backend) if backend else None
    return (home and home.example) or "redis://localhost:6379/0"


def _differ(backend: str, scheme: str) -> bool:
    """Return whether *backend* and *scheme* are known to differ. A dotted path takes any scheme."""
    if "." in f"{backend}{scheme}":
        return False
    try:
        one, other = backend_path(backend), backend_path(scheme)
    except ConfigurationError:
        return False  # The error is raised when the client is made.
    return None not in {one, other} and one != other


def _shown(key: str, value: object) -> str:
    """Return *value* for a message, unless it may contain a password."""
    if key in {"LOCATION", "OPTIONS", "BACKEND"} or not isinstance(value, str | int | float | None):
        return f"a {type(value).__name__}" if not isinstance(value, str) else "not usable"
    return repr(value)


def _locks(given: Mapping[str, Any]) -> bool:
    return "dummy" not in (given.get("BACKEND"), str(given.get("LOCATION")).partition(":")[0])


#: The backends without a lock service, and their capabilities.
WITHOUT_SERVICE = {
    "dummy": Capabilities(fence=True, read=True, permits=True),
    "database": Capabilities(several_processes=True, fence=True, read=True),
}


def backend_path(word: str) -> str | None:
    """Return the path of the backend for the scheme *word*; None: it is unknown. Schemes may share one."""
    if word in WITHOUT_SERVICE:
        return word
    home = home_of(word)
    return home and home.path


def _backend(value: Any) -> str | None:
    scheme, is_url, _ = value.partition("://") if isinstance(value, str) else ("", "", "")
    django = scheme.startswith("django.")
    try:
        if scheme and not django and backend_path(scheme) is not None:
            return "It holds a URL, which belongs into LOCATION." if is_url else None
        words = [*WITHOUT_SERVICE, *schemes()]
    except ConfigurationError as error:
        return str(error)
    remedy = f"Known are {', '.join(words)}, or a dotted path."
    if django:
        return f"Django's backends keep caches or data, no locks. {remedy}"
    if close := difflib.get_close_matches(scheme, words, n=1):
        return f"Did you mean {close[0]!r}? {remedy}"
    # Only a word is shown, because a longer text may hold a password.
    return f"No lock service is known as {scheme!r}. {remedy}" if scheme.isidentifier() else remedy


def _location(value: Any) -> str | None:
    if is_indirect(value):
        return None
    if not isinstance(value, str) or not value:
        return (
            "It has to be a URL, such as 'redis://localhost:6379/0'; a cache, as 'cache:default'; a client "
            "of redis-py; a dict of its arguments; or a function that returns one, or its dotted path."
        )
    if value.count("[") != value.count("]"):
        return "An address of IPv6 stands in brackets, as in 'redis://[::1]:6379/0'."
    return None


def _prefix(value: Any) -> str | None:
    try:
        check_prefix(value)
    except ConfigurationError as error:
        return str(error)
    return None


#: Returns the remedy for a wrong value; None: the value is right.
Check = Callable[[Any], str | None]


def _unless(fits: Callable[[Any], bool], remedy: str) -> Check:
    return lambda value: None if fits(value) else f"It {remedy}"


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_from_zero = partial(is_seconds, zero=True)
_seconds = _unless(is_seconds, a_number_of_seconds())
_count = _unless(is_count, A_COUNT)
_cap = _unless(_or_none(is_count), f"{A_COUNT} None is no limit.")

#: For each key the check of its value.
CHECKS: dict[str, Check] = {
    "BACKEND": _backend,
    "LOCATION": _location,
    "PREFIX": _prefix,
    "FENCE_EPOCH": _count,
    "TTL": _seconds,
    "TIMEOUT": _unless(
        partial(_from_zero, most=MOST_SECONDS), a_number_of_seconds(zero=True, most=MOST_SECONDS)
    ),
    "MAX_HOLD": _seconds,
    "TURN": _unless(_or_none(_from_zero), f"{a_number_of_seconds(zero=True)} None is 0.05."),
    "MAX_NAMES": _count,
    "MAX_WAITERS": _cap,
    "MAX_WAITERS_TOTAL": _cap,
    "ON_BACKEND_DOWN": _unless(
        lambda value: value in ("refuse", "run"),
        "has to be 'refuse' (no lock, no view), or 'run' where FENCE is set.",
    ),
    "FENCE": _unless(
        lambda value: isinstance(value, bool) or (isinstance(value, str) and value != ""),
        "has to be True, False, or the name of the database that has the fence's table.",
    ),
    "METRICS": _unless(
        _or_none(lambda value: value in KINDS or callable(value)),
        "has to be 'prometheus', 'opentelemetry', None, or a function that gives a listener.",
    ),
    "OPTIONS": _unless(
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        "has to be a dict of the backend's own options.",
    ),
}


#: Takes the alias of a cache, the part of LOCATION after ``cache:``. Returns the redis-py client with which
#: that cache writes. Raises `ConfigurationError` if it has none.
RedisOf = Callable[[str], Any]

_CACHE = re.compile(r"cache:(?P<alias>[^/]+)(?:/(?P<db>[0-9]{1,9}))?")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def is_indirect(location: object) -> bool:
    """Return whether *location* is no URL, but a cache, a client of redis-py, or the like: see `located`."""
    if isinstance(location, str):
        return bool(_CACHE.fullmatch(location) or _DOTTED.fullmatch(location))
    return callable(location) or isinstance(location, Mapping) or hasattr(location, "connection_pool")


def shares_database(location: object) -> str | None:
    """Return the alias of the cache whose database *location* shares; None: it shares none."""
    named = _CACHE.fullmatch(location) if isinstance(location, str) else None
    return named["alias"] if named is not None and named["db"] is None else None


def resolve_location(
    location: Any, backend: str | None, options: Mapping[str, Any], redis_of: RedisOf | None
) -> tuple[str, dict[str, Any]]:
    """Return the URL and the options of an alias with these settings. Connects to nothing.

    Raises `ConfigurationError`.
    """
    options, db = dict(options), None
    if is_indirect(location):
        if isinstance(location, str):
            if (named := _CACHE.fullmatch(location)) is not None:
                if redis_of is None:
                    raise ConfigurationError("LOCATION names a cache, and this site has none.")
                location = redis_of(named["alias"])
                db = None if named["db"] is None else int(named["db"])
            else:
                location = imported(location, "LOCATION, which is no URL,")
        location, found = located(location, backend, db=db)
        options = {**found, **options}
    provider = options.get("credential_provider")
    if isinstance(provider, str):
        options["credential_provider"] = imported(provider, "credential_provider")
    return location, options
