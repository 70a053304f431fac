"""The options of ``@distributed_lock(...)``, and their checks at import.

`refuse_unable` checks the mode later, when the backend is known from the settings.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypedDict, Unpack

from distlock.backends.base import refuse_lacking
from distlock.errors import ConfigurationError
from distlock.numbers import MOST_SECONDS, check_limit, check_seconds
from distlock.suggestions import refuse_unknown
from distlock.terms import EXCLUSIVE, PERMIT, READ, Mode
from distlock.web.names.bound_names import NO_NAME, Names, where_of
from distlock.web.names.templates import NameSource, Template
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.problems import DEFAULT_ALIAS

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

#: Registered methods that look like a misspelling of one of `METHODS`.
_LOOKALIKES = frozenset({"ORDERPATCH", "PROPPATCH", "REPORT"})

#: The item of ``methods=`` that stands for every method, even an invented one.
EVERY = "*"


class AllBut:
    """The set of all HTTP methods but those in *exempt*. No list could do: a client may send any word."""

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

#: All methods: what a guard locks on a function if it names none.
EVERY_METHOD = AllBut()

#: All methods but GET: what a rule locks on a view function if it names none.
ALL_BUT_GET = AllBut({"GET"})

#: What a guard with ``mode="shared"`` locks if it names none.
READING_METHODS = frozenset({"GET", "HEAD"})


def in_words(methods: Methods) -> str:
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
    """Return the set for ``methods=`` of a guard, in upper case, and with HEAD if GET is in it.

    Raises:
        ConfigurationError: *methods* is a str or empty, or a word in it is no HTTP method.
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
    return isinstance(value, str) and bool(value)


_MODES: dict[object, Mode] = {"exclusive": EXCLUSIVE, "shared": READ}
#: The capability that a mode needs of the backend. An exclusive lock needs none.
_CAPABILITIES = {READ: "read", PERMIT: "permits"}


def check_mode(mode: object, limit: object, fence: object, batch: int | None) -> Mode:
    """Return the mode of a guard with these options.

    Raises `ConfigurationError` for an unknown *mode*, a wrong *limit*, and contradictory options.
    """
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


#: The largest ``batch=``. No batch gets so large, because no request joins it later than
#: `distlock.engine.hold.TURN` seconds after the grant of its first member.
MOST = 1000


def check_batch(batch: object, names: Names) -> int | None:
    """Return *batch*, an option of a guard on *names*.

    None: there is no batch. Raises `ConfigurationError` for any value but None and whole numbers from 2 to
    `MOST`, and for a batch with several *names*.
    """
    if batch is None:
        return None
    # A bool is less than 2.
    if not isinstance(batch, int) or not 2 <= batch <= MOST:
        raise ConfigurationError(
            f"batch={batch!r} has to be a whole number from 2 to {MOST}: so many requests at the most share "
            "a transaction. Write batch=32, or leave it out."
        )
    if len(names.sources) > 1:
        raise ConfigurationError(f"batch={batch} stands beside {len(names.sources)} names. {_ONE_NAME}")
    return batch


def refuse_async(function: Callable[..., Any], batch: int | None) -> None:
    """Raise `ConfigurationError` if *function* is async and has a *batch*, which only threads can share."""
    if batch is not None and inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{where_of(function)} is async and has batch={batch}: a transaction goes round threads, and not "
            "tasks. Write a plain 'def', or leave batch= out."
        )


def no_stream(where: str) -> ConfigurationError:
    """Return the error for a view with ``batch=`` that has returned a streamed response."""
    return ConfigurationError(
        f"{where} has batch=, and returned a streamed response, whose content is made after the shared "
        "transaction: return it whole, or leave batch= out."
    )


def one_name(where: str, names: Sequence[str]) -> ConfigurationError:
    """Return the error for a call of *where*, which has ``batch=``, with several names."""
    return ConfigurationError(f"{where} has batch= and wants {', '.join(map(repr, names))}. {_ONE_NAME}")


def one_database(where: str, databases: list[str]) -> ConfigurationError:
    """Return the error for *where*, which has ``batch=``, with several *databases* or none."""
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


ON_CONTENDED = ("respond", "raise", "skip")


class GuardKeywords(TypedDict, total=False):
    """The options of ``@distributed_lock`` beside its names, and of a rule beside its route."""

    #: The lock service, a key of ``DISTLOCK``.
    alias: str
    #: The longest wait, seconds; None: the alias's.
    timeout: float | None
    #: Lifetime without renewal, seconds; None: the alias's.
    ttl: float | None
    #: Seconds after which a holder counts as hung; None: the alias's.
    max_hold: float | None
    #: The HTTP methods that are locked; None: GET and HEAD for ``mode="shared"``, else those that are usual
    #: for the kind of view.
    methods: Iterable[str] | None
    #: The database that is fenced; True: the default one; False: none; None: the alias's ``FENCE``.
    fence: bool | str | None
    #: How many waiting requests of one process may share a transaction; None: each has its own.
    batch: int | None
    #: ``"exclusive"``; ``"shared"``: readers share the lock, and keep writers out.
    mode: Literal["exclusive", "shared"]
    #: How many calls may run at once, as under a semaphore; None: one.
    limit: int | None
    #: What happens if the lock stays taken. ``"respond"``: a view answers 423; ``"raise"``: it raises
    #: `LockTimeout` instead; ``"skip"``: a function that is no view does not run, and its call returns None.
    on_contended: Literal["respond", "raise", "skip"]


GUARD_KEYWORDS = tuple(GuardKeywords.__annotations__)

#: The options that are not None by default, with their defaults, for `help`.
USUAL = {"alias": DEFAULT_ALIAS, "mode": "exclusive", "on_contended": "respond"}


class GuardOptions:
    """The checked arguments of one decorator. All its calls share them.

    Raises `ConfigurationError` for options that can never work, TypeError for unknown ones.
    """

    def __init__(self, names: Sequence[NameSource], **words: Unpack[GuardKeywords]) -> None:
        refuse_unknown("distributed_lock", words.keys() - GUARD_KEYWORDS, GUARD_KEYWORDS)
        alias, methods, fence = words.get("alias", DEFAULT_ALIAS), words.get("methods"), words.get("fence")
        on_contended = words.get("on_contended", "respond")
        for source in names:
            if isinstance(source, type):
                # @distributed_lock above a class, without parentheses.
                raise ConfigurationError(f"{where_of(source)}: {NO_NAME}")
        self._sources = tuple(names)
        self.names = Names(names)
        if not _is_text(alias):
            raise ConfigurationError(f"alias={alias!r} has to be a key of DISTLOCK, such as 'default'.")
        self.alias = alias
        timeout, ttl, max_hold = words.get("timeout"), words.get("ttl"), words.get("max_hold")
        self.timeout = (
            None if timeout is None else check_seconds("timeout", timeout, zero=True, most=MOST_SECONDS)
        )
        self.ttl = None if ttl is None else check_seconds("ttl", ttl)
        self.max_hold = None if max_hold is None else check_seconds("max_hold", max_hold)
        self.methods = None if methods is None else check_methods(methods)
        if fence == "" or not isinstance(fence, bool | str | None):
            raise ConfigurationError(f"fence={fence!r} has to be True, False, or the name of a database.")
        self.fence = fence
        self.batch = check_batch(words.get("batch"), self.names)
        self.limit = words.get("limit")
        self.mode = check_mode(words.get("mode", "exclusive"), self.limit, fence, self.batch)
        is_of_session = self.mode != PERMIT and any(
            not isinstance(source, Template) or all(one.place.head == "user" for one in source.placeholders)
            for source in self.names.sources
        )
        #: The mode in which all requests of one session ask for the same lock, as far as is known: a name has
        #: no placeholder but the user's key, or a function of the site makes it. None: they do not.
        self.session_mode = self.mode if is_of_session else None
        if on_contended not in ON_CONTENDED:
            raise ConfigurationError(f"on_contended={on_contended!r} has to be 'respond', 'raise' or 'skip'.")
        #: Whether a view answers 423 if the lock stays taken; else it raises `LockTimeout`.
        self.responds = on_contended == "respond"
        #: Whether the call of a function that is no view does nothing and returns None if the lock stays
        #: taken.
        self.skips = on_contended == "skip"
        self._on_contended = on_contended

    def __str__(self) -> str:
        """Return the decorator as the user would write it, without the @."""
        given = [_written(source) for source in self._sources]
        if self.alias != DEFAULT_ALIAS:
            given.append(f"alias={_written(self.alias)}")
        given += [
            f"{word}={value:g}"
            for word, value in (("timeout", self.timeout), ("ttl", self.ttl), ("max_hold", self.max_hold))
            if value is not None
        ]
        if self.methods is not None:
            named = [EVERY] if isinstance(self.methods, AllBut) else sorted(self.methods)
            given.append(f"methods=[{', '.join(map(_written, named))}]")
        if self.fence is not None:
            given.append(f"fence={_written(self.fence) if isinstance(self.fence, str) else self.fence}")
        if self.batch is not None:
            given.append(f"batch={self.batch}")
        if self.mode == READ:
            given.append('mode="shared"')
        if self.limit is not None:
            given.append(f"limit={self.limit}")
        if not self.responds:
            given.append(f"on_contended={_written(self._on_contended)}")
        return f"distributed_lock({', '.join(given)})"

    def locked_methods(self, usual: Methods | None) -> Methods | None:
        """Return the methods to lock on a view for which *usual* is the default; None: every HTTP method."""
        if self.methods is not None:
            return self.methods
        return READING_METHODS if self.mode == READ else usual

    @property
    def unused(self) -> str:
        """The text of the error for a decorator without its parentheses, or without a function below it."""
        if len(self.names.sources) == 1 and not self.names.templates:
            (source,) = self._sources
            return f"{where_of(source)}: {NO_NAME}"  # type: ignore[arg-type]
        return f"@{self} guards nothing here: write it directly above a 'def'."


def _written(source: NameSource) -> str:
    if isinstance(source, str):
        return json.dumps(source, ensure_ascii=False)
    return getattr(source, "__name__", repr(source))
