"""What ``@distributed_lock(...)`` was told, checked at import, and what it may not stand on."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from distlock.errors import ConfigurationError
from distlock.web.settings import DEFAULT_ALIAS
from distlock.web.sources import BoundNames, Names
from distlock.web.templates import NameSource

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

#: Where a decorated function says which guard it is. `functools.wraps` copies it to whatever stands above.
_MARK = "__distlock__"


class Told:
    """The arguments of one decorator. Shared by all calls; keeps nothing of any.

    Raises `ConfigurationError` for what can never work.
    """

    def __init__(
        self,
        names: Sequence[NameSource],
        *,
        alias: str = DEFAULT_ALIAS,
        timeout: float | None = None,
        ttl: float | None = None,
        methods: Iterable[str] | None = None,
    ) -> None:
        self.names = Names(names)
        if not _is_text(alias):
            raise ConfigurationError(f"alias={alias!r} has to be a key of DISTLOCK, such as 'default'.")
        self.alias = alias
        self.timeout = _seconds("timeout", timeout, zero=True)
        self.ttl = _seconds("ttl", ttl, zero=False)
        self.methods = None if methods is None else _methods(methods)

    def locks_method(self, method: str | None) -> bool:
        """Whether requests with this HTTP method are locked."""
        return self.methods is None or method in self.methods


class Guarded:
    """One decorated function: the function, what the decorator was told, and the names of its calls."""

    def __init__(self, function: Callable[..., Any], told: Told) -> None:
        refuse_unguardable(function)
        self.function = function
        self.told = told
        self.names: BoundNames = told.names.bind(function)
        #: Module and name of the function, for messages.
        self.where = _where(function)
        self.wrapper: Callable[..., Any] | None = None

    def mark(self, wrapper: Callable[..., Any]) -> None:
        """Let *wrapper* be found as this guard."""
        self.wrapper = wrapper
        setattr(wrapper, _MARK, self)


def chain(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """*function*, what it wraps, what that wraps, and so on."""
    seen = set()
    wrapped: Any = function
    while wrapped is not None and id(wrapped) not in seen:
        seen.add(id(wrapped))
        yield wrapped
        wrapped = getattr(wrapped, "__wrapped__", None)


def guards_of(function: Callable[..., Any]) -> list[Guarded]:
    """The guards that a call of *function* passes through, the outermost first."""
    found: list[Guarded] = []
    for one in chain(function):
        guard = getattr(one, _MARK, None)
        if isinstance(guard, Guarded) and guard not in found:
            found.append(guard)
    return found


def refuse_unguardable(function: Any) -> None:
    """Raise `ConfigurationError` for what would run after its lock was released, or never under it."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function):
        raise ConfigurationError(
            f"@distributed_lock stands on the class {name}, and guards functions only. Decorate the view "
            f"that {name}.as_view() returns."
        )
    if not callable(function):
        raise ConfigurationError(
            "@distributed_lock needs the lock's name: write @distributed_lock('product_<int:id>')."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{name} is async, and @distributed_lock guards plain functions only in this version. Write "
            f"'def {name}', or lock inside it: async with distlock.connect(...).lock('product_1')."
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            f"{name} is a generator: its body would run after the lock is released. Decorate a function that "
            "does the work and returns."
        )


def _where(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '?')}.{name}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _methods(methods: Iterable[str]) -> frozenset[str]:
    if isinstance(methods, str):
        raise ConfigurationError(f"methods={methods!r} has to be a list: write methods=[{methods!r}].")
    wanted = [method.upper() if _is_text(method) else method for method in methods]
    if not wanted:
        raise ConfigurationError("methods=[] would never lock: leave it out to lock every method.")
    for method in wanted:
        if method not in METHODS:
            close = difflib.get_close_matches(str(method), METHODS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(METHODS)}."
            raise ConfigurationError(f"{method!r} in methods= is no HTTP method. {hint}")
    # Frameworks answer HEAD by running what GET runs.
    return frozenset(wanted) | ({"HEAD"} if "GET" in wanted else set())


def _seconds(word: str, value: float | None, zero: bool) -> float | None:
    if value is None:
        return None
    if not _is_number(value) or value < 0 or (value == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise ConfigurationError(f"{word}={value!r} has to be a number of seconds, {least}.")
    return float(value)
