"""The texts of errors about guards that could not work, with the line to write instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from distlock.terms import READ
from distlock.web.decorator import Guarded, Told
from distlock.web.guard_options import EVERY, READING_METHODS, AllBut
from distlock.web.settings.problems import DEFAULT_ALIAS
from django_distlock.conf import MIDDLEWARE
from django_distlock.guarding.open_transactions import ABOVE
from django_distlock.guarding.transactions import EveryAlias
from django_distlock.guarding.viewclasses import view_class, with_methods, without_methods


def above_the_class(told: Told, cls: type, method: str, route: str | None) -> str:
    """Return the remedy for a guard on a method of *cls*: to write it above the class.

    *method*: the HTTP method that the guarded method answers; '' for ``dispatch``. *route*: the name of the
    route, if it leads to an action of a view set.
    """
    if route:
        # Above the class, the guard would also lock other actions, whose routes may lack its arguments.
        return (
            f'Leave it out there, and write DISTLOCK_RULES = [{{"route": {route!r}, '
            f'{_every_if_get(told, method)}"lock": …}}].'
        )
    return f"Write @{_on_class(told, method)} above the class {cls.__name__}."


def _on_class(told: Told, method: str) -> str:
    """Return the guard to write above the class in place of one on the handler of *method*."""
    if not method:
        return str(told)
    if told.mode == READ:
        return str(told) if method in READING_METHODS else with_methods(told, method)
    # Other handlers may call this one, so naming *method* alone would lock less than before.
    return with_methods(told, EVERY) if method in READING_METHODS else without_methods(told)


def _every_if_get(told: Told, method: str) -> str:
    """Return the ``methods`` of a rule that replaces the guard on the handler of *method*, or ''."""
    return f'"methods": ["{EVERY}"], ' if told.mode != READ and method in READING_METHODS else ""


def async_in_transaction(guarded: Guarded, every: EveryAlias, on_class: bool) -> Iterator[str]:
    """Yield the errors for an async view under ``ATOMIC_REQUESTS``, which Django refuses if not marked."""
    line = "@transaction.non_atomic_requests above it"
    if on_class:
        line = '@method_decorator(transaction.non_atomic_requests, name="dispatch") above the class'
    for alias in every.atomic_requests():
        yield (
            f"{guarded.where} is async, and the database {alias!r} has ATOMIC_REQUESTS, which Django can't "
            f"do for async views. Write {line}, and open transactions in functions that sync_to_async() runs."
        )


def async_with_fence(guarded: Guarded, *, row_is_lock: bool = False) -> str:
    """Return the error for a fence on async code. *row_is_lock*: the backend 'database' has set the fence."""
    why = "is locked by a row, with the backend 'database'" if row_is_lock else "has a fence"
    return (
        f"{guarded.where} is async and {why}, and Django opens no transactions around async code. "
        "Write a plain 'def', or write the guard on the function that sync_to_async() runs."
    )


def async_in_rest(told: Told, cls: type) -> str:
    return (
        f"{cls.__module__}.{cls.__qualname__} is an async view of REST framework, which @{told} does not "
        "guard: write 'def', or 'async with locks.lock(…):' in its methods if its dispatch() awaits them."
    )


def below_api_view(guarded: Guarded) -> str:
    return f"@distributed_lock stands below @api_view on {guarded.where}: write it above."


def too_early(guarded: Guarded, cls: type) -> str:
    """Return the error for a guard on a method that returns before the view does its work."""
    return (
        f"{guarded.where} returns before the view runs, and gives the lock back: write @{guarded.told} above "
        f"the class {cls.__name__}."
    )


def around_everything(told: Told, request: Any) -> str:
    """Return the remedy for a guard inside a transaction that other code opened. *request*: the call's."""
    if (match := getattr(request, "resolver_match", None)) is None:
        return ABOVE
    rule = as_rule(told, match.view_name, on_class=view_class(match.func) is not None)
    return f"{ABOVE} Or lock the route, around all of them. {rule}"


def as_rule(told: Told, route: str | None, *, on_class: bool = False) -> str:
    """Return the advice to replace the guard *told* by a rule for *route*, which locks outside decorators.

    *on_class*: whether the guard is on a class. On a function it locks every method.
    """
    # A rule can't quote callables that make names, so the site has to fill them in.
    names = [json.dumps(text) if (text := getattr(one, "text", "")) else "…" for one in told.names.sources]
    written: dict[str, object] = {"route": route or "…"}
    if isinstance(told.methods, AllBut) or (told.methods is None and told.mode != READ and not on_class):
        written["methods"] = [EVERY]
    elif told.methods is not None:
        written["methods"] = sorted(told.methods)
    if told.alias != DEFAULT_ALIAS:
        written["alias"] = told.alias
    written |= {
        word: value
        for word in ("timeout", "ttl", "max_hold", "fence", "batch", "limit")
        if (value := getattr(told, word)) is not None
    }
    if told.mode == READ:
        written["mode"] = "shared"
    line = json.dumps(written, ensure_ascii=False).replace("true", "True").replace("false", "False")
    lock = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    name = "" if route else " Give the route a name, and write that in it."
    return (
        f'Write DISTLOCK_RULES = [{line[:-1]}, "lock": {lock}}}] instead of the decorator, with '
        f"{MIDDLEWARE!r} in MIDDLEWARE.{name}"
    )
