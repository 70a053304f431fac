"""``DISTLOCK_RULES``: guards from settings alone, with no change to the views."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, cast

from distlock.errors import ConfigurationError
from distlock.suggestions import ARGUMENTS_OF_OTHER_LIBRARIES
from distlock.terms import EXCLUSIVE, READ
from distlock.web.guard_marks import When
from distlock.web.guard_options import (
    ALL_BUT_GET,
    GUARD_KEYWORDS,
    GuardKeywords,
    GuardOptions,
    Methods,
    in_words,
    overlap,
)
from distlock.web.names.templates import NameSource, Template
from distlock.web.settings.problems import imported

_EXAMPLE = '{"route": "shop:reduce-stock", "lock": "product_<id>"}'
#: A dotted path, which ``when`` may be, and ``lock`` may not.
_DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_KEYS = ("route", "lock", *GUARD_KEYWORDS, "when", "only_this_route")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: it locks the view of `route` as a decorator with `options` above all others would."""

    #: The framework's name of the view: the URL's name in Django, the endpoint in Flask.
    route: str
    options: GuardOptions
    when: When | None = None
    #: Whether other routes to the same view are left unlocked on purpose.
    only_this_route: bool = False

    @property
    def methods(self) -> Methods:
        """The HTTP methods that it locks on a view function. On a view class it may lock fewer."""
        return self.options.locked_methods(ALL_BUT_GET) or ALL_BUT_GET

    def __str__(self) -> str:
        return f"the rule for {self.route!r}"


def read_rules(setting: object, *, name: str = "DISTLOCK_RULES") -> list[Rule]:
    """Return the rules that *setting* describes. *name* is what messages call the setting.

    Imports the predicates that are named by a dotted path. Raises `ConfigurationError` for the first problem.
    """
    rules = list(_read(setting, name))

    def place(index: int) -> tuple[int, bool]:
        """Return the sort key of a rule. A reader comes behind the last rule that may write its lock."""
        # The first rule is the outermost, and a writer inside a reader of the same name would wait for
        # itself. A HEAD request passes both a rule for GET and one for all other methods: see `overlaps`.
        reads = rules[index].options.mode == READ
        writers = [at for at, other in enumerate(rules) if reads and _may_write(other, rules[index])]
        return max([index, *writers]), reads

    return [rules[index] for index in sorted(range(len(rules)), key=place)]


def _may_write(writer: Rule, reader: Rule) -> bool:
    """Return whether *writer* is a rule for writing, and may lock a name that *reader* locks, too."""
    if writer.options.mode != EXCLUSIVE or writer.route != reader.route:
        return False
    return any(
        _may_be_same(one, other)
        for one, other in product(writer.options.names.sources, reader.options.names.sources)
    )


def _may_be_same(one: Template | Callable[..., object], other: Template | Callable[..., object]) -> bool:
    """Return False only if no name that *one* makes is one that *other* makes."""
    if not isinstance(one, Template) or not isinstance(other, Template):
        return True
    start, placeholder, _ = one.text.partition("<")
    other_start, other_placeholder, _ = other.text.partition("<")
    return (
        one.text == other.text
        or bool(placeholder and other_start.startswith(start))
        or bool(other_placeholder and start.startswith(other_start))
    )


def unknown_route(rule: Rule, known: Iterable[str]) -> ConfigurationError:
    """Return the error for a rule whose route is none of *known*."""
    known = sorted(known)
    close = difflib.get_close_matches(rule.route, known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(known) or 'none'}."
    return ConfigurationError(f"DISTLOCK_RULES names the route {rule.route!r}, which does not exist. {hint}")


def passes_by(rule: Rule, where: str, line: str) -> ConfigurationError:
    """Return the error for a second route to the view of *rule*.

    Args:
        rule: The rule whose view has the second route.
        where: The second route, and what it runs, as a clause.
        line: The rule to write for the second route.
    """
    return ConfigurationError(
        f"DISTLOCK_RULES lock {rule.route!r}, and {where} without the lock: write a rule for it, too, "
        f'{line}. If it needs no lock, write "only_this_route": True in the rule for {rule.route!r}.'
    )


def overlaps(rules: Iterable[Rule]) -> Iterator[ConfigurationError]:
    """Yield an error for each pair of *rules* that lock the same methods of one route.

    Two rules that both have a ``when`` are allowed. If both lock a request, the first one is the outer one:
    *rules* are in the order of `read_rules`, which puts readers inside writers of the same lock.
    """
    for one, other in combinations(rules, 2):
        both = overlap(one.methods, other.methods)
        if both == frozenset({"HEAD"}):
            continue  # One locks GET, which includes HEAD. A HEAD request takes both locks.
        if one.route == other.route and both and not (one.when and other.when):
            yield ConfigurationError(
                f"DISTLOCK_RULES has two rules for {one.route!r} that lock {in_words(both)}: name "
                'all locks in one rule, "lock": ["product_<id>", "shop_<slug:shop>"], which takes all or '
                'none, or give each its own "when".'
            )


def _read(setting: object, name: str) -> Iterator[Rule]:
    if setting is None:
        return
    if isinstance(setting, str | Mapping) or not isinstance(setting, Iterable):
        raise ConfigurationError(
            f"{name} is a {type(setting).__name__}, not a list. Write {name} = [{_EXAMPLE}]."
        )
    for index, given in enumerate(setting):
        where = f"{name}[{index}]"
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                f"{where} is a {type(given).__name__}, not a dict. Write {name} = [{_EXAMPLE}]."
            )
        _refuse_unknown_keys(where, given)
        try:
            yield _rule(given)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error


def _rule(given: Mapping[str, Any]) -> Rule:
    for key in ("route", "lock"):
        if not given.get(key):
            raise ConfigurationError(f"{key!r} is missing. Write for example {_EXAMPLE}.")
    if not isinstance(given["route"], str):
        raise ConfigurationError(f"'route' is a {type(given['route']).__name__}, not the name of a route.")
    words = cast(GuardKeywords, {key: given[key] for key in GUARD_KEYWORDS if key in given})
    options = GuardOptions(_names(given["lock"]), **words)
    if options.skips:
        raise ConfigurationError(
            'a view has to answer: on_contended="skip" is for plain functions. Leave it out for a 423.'
        )
    only = given.get("only_this_route", False)
    if not isinstance(only, bool):
        raise ConfigurationError(f"'only_this_route' is {only!r}: write True, or leave it out.")
    return Rule(given["route"], options, _predicate(given.get("when")), only)


def _names(lock: object) -> list[NameSource]:
    names: list[NameSource] | None = None
    if isinstance(lock, str) or callable(lock):
        names = [lock]
    elif isinstance(lock, Iterable) and not isinstance(lock, Mapping | bytes):
        names = list(lock)
    if names is not None:
        for name in names:
            if isinstance(name, str) and _DOTTED_PATH.fullmatch(name):
                raise ConfigurationError(
                    f"'lock' is {name!r}, which would be one name for every request. If it is the path of a "
                    f"function, write the function itself. If it is a name, write {name.replace('.', '_')!r}."
                )
        return names
    raise ConfigurationError(
        f"'lock' is a {type(lock).__name__}: write a template such as "
        '"product_<id>", a callable, or a list '
        "of these."
    )


def _predicate(when: object) -> When | None:
    if when is None:
        return None
    if not isinstance(when, str) and not callable(when):
        raise ConfigurationError(f"'when' is a {type(when).__name__}: write a dotted path or a callable.")
    found = imported(when, "'when'") if isinstance(when, str) else when
    if not callable(found):
        raise ConfigurationError(f"'when' is {when!r}, which is a {type(found).__name__} and no callable.")
    if inspect.iscoroutinefunction(found):
        raise ConfigurationError(f"'when' is {when!r}, which is async: nobody could await it. Write 'def'.")
    predicate: When = found
    return predicate


def _refuse_unknown_keys(where: str, given: Mapping[Any, Any]) -> None:
    for key in given:
        if key in _KEYS:
            continue
        close = difflib.get_close_matches(str(key).lower(), _KEYS, n=1)
        if key in ARGUMENTS_OF_OTHER_LIBRARIES:
            raise ConfigurationError(
                f"{where} has an unknown key {key!r}. Here that is {ARGUMENTS_OF_OTHER_LIBRARIES[key]}."
            )
        hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(_KEYS)}."
        raise ConfigurationError(f"{where} has an unknown key {key!r}. {hint}")
