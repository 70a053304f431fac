"""What the view of a route says about its guards before it is ever called: also those on its methods."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction

from distlock.errors import ConfigurationError
from distlock.web.decorator import UNSAFE_METHODS, Guarded, guards_of
from distlock.web.overriding import passed_by as overridden
from django_distlock.checks.hidden import hidden
from django_distlock.guarding.advice import (
    above_the_class,
    async_in_rest,
    async_in_transaction,
    below_api_view,
    too_early,
)
from django_distlock.guarding.transactions import EveryAlias
from django_distlock.guarding.viewclasses import (
    TOO_EARLY,
    guards_below_api_view,
    is_rest,
    methods_of,
    never_awaited,
    refuse_own_dispatch,
    refuse_useless,
    refuse_useless_method,
    view_class,
)
from django_distlock.rules.routes import Route


@dataclass(frozen=True, slots=True)
class Found:
    """One guard that requests for a route pass."""

    guarded: Guarded
    #: The method that it stands on; '' if it stands around the view.
    method: str
    #: Whether the route's arguments come to it as they are, as far as one can see.
    direct: bool


def guards_at(route: Route) -> Iterator[Found]:
    """All guards that requests for *route* pass. Raises `ConfigurationError` for one that can never work."""
    view = route.pattern.callback
    cls = view_class(view)
    if cls is None:
        for guarded in guards_of(view):
            yield Found(guarded, "", guarded.wrapper is view)
        return
    on_dispatch = guards_of(cls.dispatch)
    for guarded in guards_of(view):
        if guarded not in on_dispatch:
            yield Found(guarded, "", guarded.wrapper is view)
    for name in ("dispatch", *_answering(view, cls)):
        function = getattr(cls, name)
        for guarded in guards_of(function):
            yield Found(
                _on_method(guarded, cls, name), name, name == "dispatch" or not _has_own(cls, "dispatch")
            )


def misplaced(route: Route) -> Iterator[str]:
    """Guards at *route* that would be refused when they are first called, with the line to write."""
    view = route.pattern.callback
    cls = view_class(view)
    around = [found for found in guards_at(route) if found.method in {"", "dispatch"}]
    yield from hidden(route)
    if iscoroutinefunction(view):
        for found in around:
            if found.method == "" and not iscoroutinefunction(found.guarded.wrapper):
                continue  # sync_to_async() stands around a guard of sync code, which opens its transactions.
            every = EveryAlias(getattr(view, "_non_atomic_requests", ()))
            yield from async_in_transaction(found.guarded, every, cls is not None)
    if cls is None:
        return
    if never_awaited(cls, answering := _answering(view, cls)):
        yield from (
            async_in_rest(guarded.told, cls)
            for name in ("dispatch", *answering)
            for guarded in guards_of(getattr(cls, name))
        )
        return
    yield from _useless(view, cls)
    if not around and not iscoroutinefunction(view):
        # Inside another guard they re-enter.
        yield from _in_transaction(route, view, cls)
    for name in TOO_EARLY:
        for _, guarded in _guards_on(cls, name):
            yield too_early(guarded, cls)
    yield from map(below_api_view, guards_below_api_view(view))


def passed_by(route: Route) -> Iterator[str]:
    """Guards that the class of *route* inherits, and does not call: its requests would not be locked."""
    view = route.pattern.callback
    cls = view_class(view)
    if cls is None:
        return
    present = {found.method for found in guards_at(route)}
    for name in ("dispatch", *_answering(view, cls)):
        if not present.isdisjoint({"", "dispatch", name}):
            continue
        for hiding, base, guarded in overridden(cls, name):
            yield (
                f"{hiding.__module__}.{hiding.__qualname__}.{name}() does not call that of its base "
                f"{base.__qualname__}, which is locked: requests would pass the lock by. Write "
                f"@{guarded.told} above the class {base.__qualname__}, for its subclasses, too."
            )


def reads_early(route: Route) -> Iterator[str]:
    """Classes that do something of their own before they are locked."""
    cls = view_class(route.pattern.callback)
    if cls is None:
        return
    rest = is_rest(cls)
    locked = [found.guarded for found in guards_at(route) if rest or found.method == "dispatch"]
    for name in ("setup", "initial") if rest else ("setup",):
        for guarded in locked[:1] if _has_own(cls, name) else ():
            line = "Read it in the method that answers" if rest else f"Write @{guarded.told} above the class"
            yield (
                f"{name}() of {cls.__module__}.{cls.__qualname__} runs before its "
                f"{'handler' if rest else 'dispatch()'} is locked, and what it reads may change meanwhile. "
                f"{line}."
            )


def _answering(view: Any, cls: Any) -> dict[str, set[str]]:
    """The methods of *cls* that may answer requests to *view*: name -> HTTP methods."""
    actions: dict[str, str] = getattr(view, "actions", None) or {
        method.lower(): method.lower() for method in methods_of(view) or ()
    }
    found: dict[str, set[str]] = {}
    for method, name in actions.items():
        if hasattr(cls, name):
            found.setdefault(name, set()).add(method.upper())
    return found


def _on_method(guarded: Guarded, cls: Any, name: str) -> Guarded:
    """*guarded* as it will be: `method_decorator` has tried its decorators on a dummy so far."""
    if guarded.function.__module__ != "django.utils.decorators":
        return guarded
    settled = Guarded(getattr(cls, name), guarded.told)
    settled.where = f"{cls.__module__}.{cls.__qualname__}.{name}"
    return settled


def _guards_on(cls: Any, name: str) -> Iterator[tuple[type, Guarded]]:
    """The guards on the method *name* of *cls* and of its bases, with the class that has it."""
    for base in cls.__mro__:
        if (function := vars(base).get(name)) is not None:
            for guarded in guards_of(function):
                yield base, _on_method(guarded, base, name)


def _useless(view: Any, cls: Any) -> Iterator[str]:
    """Guards that are told to lock what never comes."""
    for name, answers in {"dispatch": set[str](), **_answering(view, cls)}.items():
        for guarded in guards_of(getattr(cls, name)):
            try:
                if name != "dispatch":
                    refuse_useless_method(guarded, answers)
                    continue
                if is_rest(cls):
                    refuse_own_dispatch(_on_method(guarded, cls, name), cls)
                if not hasattr(view, "actions"):
                    refuse_useless(_on_method(guarded, cls, name), cls, methods_of(view), UNSAFE_METHODS)
            except ConfigurationError as error:
                yield str(error)


def _in_transaction(route: Route, view: Any, cls: Any) -> Iterator[str]:
    """Guards on methods that are called inside the transaction that Django opens around the view."""
    every: set[str] = getattr(view, "_non_atomic_requests", set())
    opened = [] if isinstance(every, EveryAlias) else EveryAlias(every).atomic_requests()
    for name, methods in {"dispatch": set[str](), **_answering(view, cls)}.items():
        for _, guarded in _guards_on(cls, name) if opened else ():
            on_action = hasattr(view, "actions") and name != "dispatch"
            line = above_the_class(
                guarded.told, cls, min(methods, default=""), route.name if on_action else None
            )
            yield (
                f"{guarded.where} is called inside the transaction that ATOMIC_REQUESTS opens on the "
                f"database {opened[0]!r}, and lets its lock go before COMMIT. {line}"
            )


def _has_own(cls: type, name: str) -> bool:
    """Whether the site has written a method of this name for *cls*."""
    module = getattr(inspect.unwrap(getattr(cls, name)), "__module__", None) or ""
    return not module.startswith(("django.", "rest_framework."))
