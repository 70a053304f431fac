"""Which HTTP methods a guard locks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from distlock.errors import ConfigurationError

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

#: Registered methods that look like a typing error of one of `METHODS`.
_LOOKALIKES = frozenset({"ORDERPATCH", "PROPPATCH", "REPORT"})

#: The value of ``methods=`` for every method, even invented ones.
EVERY = "*"


class AllBut:
    """Every HTTP method but *some*. A client may send any word, so the methods can't be listed."""

    __slots__ = ("exempt",)

    def __init__(self, exempt: Iterable[str] = ()) -> None:
        self.exempt = frozenset(exempt)

    def __contains__(self, method: object) -> bool:
        return method not in self.exempt

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllBut) and self.exempt == other.exempt

    def __hash__(self) -> int:
        return hash(self.exempt)

    def __repr__(self) -> str:
        return f"AllBut({sorted(self.exempt)})"

    def isdisjoint(self, methods: Methods) -> bool:
        """Tell whether no method is in both sets."""
        return not isinstance(methods, AllBut) and self.exempt.issuperset(methods)


#: A set of HTTP methods.
Methods = frozenset[str] | AllBut

#: The methods that a guard locks on a function if nothing exempts one.
EVERY_METHOD = AllBut()

#: The methods that a rule locks on an unknown function, unless it names some.
ALL_BUT_GET = AllBut({"GET"})

#: The methods that a guard for reading locks, unless it names some.
READING_METHODS = frozenset({"GET", "HEAD"})


def written(methods: Methods) -> str:
    """Return *methods* as a sentence has them."""
    if isinstance(methods, AllBut):
        return f"every method but {', '.join(sorted(methods.exempt))}" if methods.exempt else "every method"
    return ", ".join(sorted(methods))


def overlap(one: Methods, other: Methods) -> Methods:
    """Return the methods that are in both sets."""
    if isinstance(one, AllBut):
        if isinstance(other, AllBut):
            return AllBut(one.exempt | other.exempt)
        return other - one.exempt
    return one - other.exempt if isinstance(other, AllBut) else one & other


def check_methods(methods: Iterable[str]) -> Methods:
    """Return *methods*, of a guard, with HEAD where GET is among them.

    Raises:
        ConfigurationError: The list is empty, or a word in it is no HTTP method.
    """
    if isinstance(methods, str):
        raise ConfigurationError(f"methods={methods!r} has to be a list: write methods=[{methods!r}].")
    wanted = [method.upper() if _is_text(method) else method for method in methods]
    if not wanted:
        raise ConfigurationError("methods=[] would never lock: leave it out to lock every method.")
    if EVERY in wanted:
        return EVERY_METHOD
    for method in wanted:
        if not _is_method(method):
            known = ", ".join(METHODS)
            raise ConfigurationError(
                f"{method!r} in methods= is no HTTP method. Known are {known}; '*' is every one."
            )
        close = difflib.get_close_matches(method, METHODS, n=1)
        if close and method not in METHODS and method not in _LOOKALIKES:
            raise ConfigurationError(f"{method!r} in methods= is no HTTP method. Did you mean {close[0]!r}?")
    # Frameworks answer HEAD by running what GET runs.
    return frozenset(wanted) | ({"HEAD"} if "GET" in wanted else set())


def _is_method(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Z0-9!#$%&'+.^_`|~-]+", value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
