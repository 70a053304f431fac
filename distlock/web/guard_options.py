"""The checks of a guard's options: methods, mode, limit and batch.

`distlock.web.decorator` calls them at import. `refuse_unable` is for the settings, which know the backend.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distlock.backends.base import refuse_lacking
from distlock.errors import ConfigurationError
from distlock.numbers import check_limit
from distlock.terms import EXCLUSIVE, PERMIT, READ, Mode
from distlock.web.names.sources import Names, where_of
from distlock.web.settings.aliases import AliasSettings

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

#: Registered methods that look like a typing error of one of `METHODS`.
_LOOKALIKES = frozenset({"ORDERPATCH", "PROPPATCH", "REPORT"})

#: The value of ``methods=`` for every method, even invented ones.
EVERY = "*"


class AllBut:
    """Every HTTP method but those in *exempt*. They can't be listed, because a client may send any word."""

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
        """Return whether no method is in both sets."""
        return not isinstance(methods, AllBut) and self.exempt.issuperset(methods)


#: A set of HTTP methods.
Methods = frozenset[str] | AllBut

#: The methods that a guard locks on a function, unless it names some.
EVERY_METHOD = AllBut()

#: The methods that a rule locks on an unknown function, unless it names some.
ALL_BUT_GET = AllBut({"GET"})

#: The methods that a guard for reading locks, unless it names some.
READING_METHODS = frozenset({"GET", "HEAD"})


def written(methods: Methods) -> str:
    """Return *methods* as part of a sentence."""
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
    """Return *methods* of a guard, in upper case, and with HEAD if GET is among them.

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
    # Frameworks answer HEAD with the view of GET.
    return frozenset(wanted) | ({"HEAD"} if "GET" in wanted else set())


def _is_method(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Z0-9!#$%&'+.^_`|~-]+", value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_MODES: dict[object, Mode] = {"exclusive": EXCLUSIVE, "shared": READ}
#: The capability that each mode needs of the backend.
_CAPABILITIES = {READ: "read", PERMIT: "permits"}


def check_mode(mode: object, limit: object, fence: object, batch: int | None) -> Mode:
    """Return the mode of a guard with these options. Raises `ConfigurationError` for contradictions."""
    if not isinstance(mode, str) or mode not in _MODES:
        raise ConfigurationError(f"mode={mode!r} has to be 'exclusive' or 'shared'.")
    found = _MODES[mode]
    if limit is not None:
        if found == READ:
            raise ConfigurationError(
                f'mode="shared" stands beside limit={limit!r}, and any number of readers may share a lock: '
                "leave one of both out."
            )
        check_limit(limit)
        if fence:
            raise ConfigurationError(
                f"fence={fence!r} stands beside limit={limit}, and several calls at once are in no order "
                "that a fence could keep. Leave fence= out, or fence a lock inside."
            )
        found = PERMIT
    if batch is not None and found != EXCLUSIVE:
        word = 'mode="shared"' if found == READ else f"limit={limit}"
        raise ConfigurationError(
            f"batch={batch} stands beside {word}: a batch is for requests that wait for each other, and "
            "these run at once. Leave batch= out."
        )
    return found


def refuse_unable(settings: AliasSettings, mode: Mode, wish: str) -> None:
    """Raise `ConfigurationError` if the backend of *settings* has no locks of *mode*.

    *wish*: the guard as the user wrote it, for the message.
    """
    if (capability := _CAPABILITIES.get(mode)) is not None:
        refuse_lacking(settings.scheme, settings.capabilities, capability, wish)


#: The most requests in a batch. The turn of a process ends before there are more.
MOST = 1000


def check_batch(batch: object, names: Names) -> int | None:
    """Return the option *batch* of a guard on *names*.

    Raises `ConfigurationError` unless it is a whole number from 2 to `MOST`, and there is one name.
    """
    if batch is None:
        return None
    if not isinstance(batch, int) or isinstance(batch, bool) or not 2 <= batch <= MOST:
        raise ConfigurationError(
            f"batch={batch!r} has to be a whole number from 2 to {MOST}: so many requests at the most share "
            "a transaction. Write batch=32, or leave it out."
        )
    if len(names.sources) > 1:
        raise ConfigurationError(f"batch={batch} stands beside {len(names.sources)} names. {_ONE_NAME}")
    return batch


def refuse_async(function: Callable[..., Any], batch: int | None) -> None:
    """Raise `ConfigurationError` if *function* is async and has a *batch*, whose members are threads."""
    if batch is not None and inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{where_of(function)} is async and has batch={batch}: a transaction goes round threads, and not "
            "tasks. Write a plain 'def', or leave batch= out."
        )


def no_stream(where: str) -> ConfigurationError:
    """Return the error for a view with ``batch=`` and a response that is made after its transaction."""
    return ConfigurationError(
        f"{where} has batch=, and returned a streamed response, whose content is made after the shared "
        "transaction: return it whole, or leave batch= out."
    )


def one_name(where: str, names: Sequence[str]) -> ConfigurationError:
    """Return the error for a call of *where*, which has ``batch=``, with several names."""
    return ConfigurationError(f"{where} has batch= and wants {', '.join(map(repr, names))}. {_ONE_NAME}")


def one_database(where: str, databases: list[str]) -> ConfigurationError:
    """Return the error for *where*, which has ``batch=``, and transactions in these *databases*."""
    if databases:
        shown = ", ".join(map(repr, databases))
        return ConfigurationError(
            f"{where} has batch=, and transactions of several databases: {shown}. Requests share one: leave "
            "batch= out, or let the others commit by themselves."
        )
    return ConfigurationError(
        f"{where} has batch=, and no transaction that requests could share: write fence=True beside it."
    )


_ONE_NAME = (
    "Only requests that wait for one and the same lock can share a transaction: leave batch= out, or name "
    "one lock."
)
