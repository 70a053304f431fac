"""Finds misplaced guards on the view of a route and on its methods, before the view is ever called.

A misplaced guard would lock inside a transaction, too late, or never.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain as joined
from itertools import pairwise
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import transaction

from distlock.errors import ConfigurationError
from distlock.web.guard_marks import Guarded, around, chain, guards_of, unused
from distlock.web.guard_stack import STACK
from distlock.web.names.bound_names import where_of
from distlock.web.results import skipping_view
from django_distlock.guarding import call_context, view_classes
from django_distlock.guarding.atomic_requests import OptOuts, opened_around
from django_distlock.private import decorators_of, opted_out
from django_distlock.private_of_others import is_rest
from django_distlock.rules import Route, refused_below


@dataclass(frozen=True, slots=True)
class PlacedGuard:
    """One guard that requests for a route pass."""

    guarded: Guarded
    #: The name of the method that the guard is on; '' if it is around the view.
    method: str
    #: Whether the guard gets the route's arguments unchanged, because no other decorator is above it.
    direct: bool


def guards_at(route: Route) -> Iterator[PlacedGuard]:
    """Yield the guards that requests for *route* pass.

    Raises `ConfigurationError` for a guard that can never work.
    """
    view, cls = route.view, route.cls
    if cls is None:
        for guarded in guards_of(view):
            yield PlacedGuard(guarded, "", guarded.wrapper is view)
        return
    on_dispatch = guards_of(cls.dispatch)
    for guarded in guards_of(view):
        if guarded not in on_dispatch:
            yield PlacedGuard(guarded, "", guarded.wrapper is view)
    for name in ("dispatch", *view_classes.answering(view)):
        function = getattr(cls, name)
        for guarded in guards_of(function):
            yield PlacedGuard(
                view_classes.on_method(guarded, cls, name),
                name,
                name == "dispatch" or not _has_own(cls, "dispatch"),
            )


def inside_transactions(view: Any, cls: Any) -> Iterator[str]:
    """Yield the errors for guards whose lock is acquired in a transaction of ATOMIC_REQUESTS.

    A guard above on the same view opens that transaction.
    """
    around = list(dict.fromkeys(guards_of(view) + ([] if cls is None else guards_of(cls.dispatch))))
    methods = [] if cls is None else [guards_of(getattr(cls, name)) for name in view_classes.answering(view)]
    stacks = [[*around, *inner] for inner in methods or [[]]]
    for outer, below in dict.fromkeys(pair for guards in stacks for pair in pairwise(guards)):
        for refused in refused_below(outer, [below], view, outer.below):
            same_alias = refused.options.alias == outer.options.alias
            advice = "Name all locks in the upper one." if same_alias else STACK
            yield (
                f"{outer.where} has @{outer.options}, and inside the transaction that it opens for "
                f"ATOMIC_REQUESTS the lock of @{refused.options} is taken. {advice}"
            )


def misplaced(route: Route) -> Iterator[str]:
    """Yield the errors that guards at *route* would raise at the first call."""
    view, cls = route.view, route.cls
    around = [placed for placed in guards_at(route) if placed.method in {"", "dispatch"}]
    yield from filter(None, (skipping_view(placed.guarded) for placed in guards_at(route)))
    yield from below_atomic(route)
    yield from hidden_from_django(route)
    yield from inside_transactions(view, cls)
    if iscoroutinefunction(view):
        for placed in around:
            if placed.method == "" and not iscoroutinefunction(placed.guarded.wrapper):
                continue  # sync_to_async() wraps this guard of sync code, which opens its own transactions.
            opt_outs = OptOuts(opted_out(view))
            yield from call_context.async_in_transaction(placed.guarded, opt_outs, cls is not None)
    if cls is None:
        return
    if view_classes.never_awaited(cls, methods := view_classes.answering(view)):
        yield from (
            call_context.async_in_rest(guarded.options, cls)
            for name in ("dispatch", *methods)
            for guarded in guards_of(getattr(cls, name))
        )
        return
    yield from _useless(view, cls)
    if not around and not iscoroutinefunction(view):
        # With a guard around the view, the transactions would begin after the lock.
        yield from on_methods(route)
    for name in view_classes.TOO_EARLY:
        for _, guarded in view_classes.guards_on(cls, name):
            yield call_context.too_early(guarded, cls)
    yield from map(call_context.below_api_view, view_classes.guards_below_api_view(view))


def passed_by(route: Route) -> Iterator[str]:
    """Yield an error for each guarded method that the class of *route* overrides without calling it."""
    view, cls = route.view, route.cls
    if cls is None:
        return
    present = {placed.method for placed in guards_at(route)}
    for name in ("dispatch", *view_classes.answering(view)):
        if not present.isdisjoint({"", "dispatch", name}):
            continue
        for hiding, base, guarded in view_classes.overridden(cls, name):
            yield (
                f"{where_of(hiding)}.{name}() does not call that of its base {base.__qualname__}, which is "
                f"locked: requests would pass the lock by. Write @{guarded.options} above the class "
                f"{base.__qualname__}, for its subclasses, too."
            )


def reads_early(route: Route) -> Iterator[str]:
    """Yield a warning for a ``setup()`` or ``initial()`` of the site that runs before the lock at *route*."""
    cls = route.cls
    if cls is None:
        return
    rest = is_rest(cls)
    locked = [placed.guarded for placed in guards_at(route) if rest or placed.method == "dispatch"]
    for name in ("setup", "initial") if rest else ("setup",):
        for guarded in locked[:1] if _has_own(cls, name) else ():
            line = (
                "Read it in the method that answers" if rest else f"Write @{guarded.options} above the class"
            )
            yield (
                f"{name}() of {where_of(cls)} runs before its {'handler' if rest else 'dispatch()'} is "
                f"locked, and what it reads may change meanwhile. {line}."
            )


def runs_before(route: Route) -> Iterator[str]:
    """Yield a warning for each ``dispatch()`` or ``setup()`` of the site that runs before the lock."""
    view, cls = route.view, route.cls
    if cls is None:
        return
    placed = list(guards_at(route))
    if is_rest(cls):
        # `reads_early` reports other methods that run before the handler.
        found = [(early, "dispatch") for early in view_classes.overriding(cls, ["dispatch"])]
        for one in placed[:1]:
            yield from _each_before(found, one.guarded, "Read it in the method that answers.")
        return
    if any(not one.method for one in placed):
        return
    if locked := list(view_classes.guards_on(cls, "dispatch")):
        if any(view_classes.overridden(cls, "dispatch")):
            return  # An override does not call the locked dispatch(): `passed_by` reports it.
        base, guarded = locked[0]
        above = cls.__mro__[: cls.__mro__.index(base)]
        found = [(one, "dispatch") for one in view_classes.overriding(cls, ["dispatch"]) if one in above]
        yield from _each_before(found, guarded, _line(guarded, cls))
        return
    early = [(one, name) for name in ("setup", "dispatch") for one in view_classes.overriding(cls, [name])]
    for name, methods in view_classes.answering(view).items():
        for _, guarded in list(view_classes.guards_on(cls, name))[:1]:
            yield from _each_before(early, guarded, _line(guarded, cls, methods))


def _line(guarded: Guarded, cls: type, methods: Iterable[str] = ("",)) -> str:
    line = call_context.above_the_class(guarded.options, cls, min(methods))
    return f"{line} A rule for the route does the same."


def _each_before(found: Iterable[tuple[type, str]], guarded: Guarded, line: str) -> Iterator[str]:
    for base, name in found:
        yield (
            f"{name}() of {where_of(base)} runs before {guarded.where} is locked, and what it reads may have "
            f"changed by then. {line}"
        )


def _useless(view: Any, cls: Any) -> Iterator[str]:
    """Yield the errors for guards that never lock: what they guard answers none of their HTTP methods."""
    for name, answers in {"dispatch": set[str](), **view_classes.answering(view)}.items():
        for found in guards_of(getattr(cls, name)):
            try:
                if name != "dispatch":
                    view_classes.refuse_useless_method(found, answers)
                    continue
                guarded = view_classes.on_method(found, cls, name)
                if is_rest(cls):
                    view_classes.refuse_own_dispatch(guarded, cls)
                if not hasattr(view, "actions"):
                    usual = view_classes.usual_methods_of(view)
                    view_classes.refuse_useless(guarded, cls, view_classes.methods_of(view), usual)
            except ConfigurationError as error:
                yield str(error)


def _has_own(cls: type, name: str) -> bool:
    """Return whether the method *name* of *cls* is code of the site."""
    module = getattr(inspect.unwrap(getattr(cls, name)), "__module__", None) or ""
    return not module.startswith(("django.", "rest_framework."))


def logs_in_late(found: Iterable[PlacedGuard]) -> Iterator[str]:
    """Yield a warning for each guard above a decorator of `django.contrib.auth`, which checks the login."""
    for guarded in (placed.guarded for placed in found):
        modules = [getattr(one, "__globals__", {}).get("__name__") for one in chain(guarded.function)]
        if "django.contrib.auth.decorators" in modules:
            yield (
                f"The lock of {guarded.where} stands above a decorator of django.contrib.auth, so that users "
                "who are not logged in wait for it, and keep others waiting: write "
                f"@{guarded.options} below @login_required."
            )


def below_atomic(route: Route) -> Iterator[str]:
    """Yield the errors for guards at *route* inside ``@transaction.atomic``."""
    view, cls = route.view, route.cls
    # as_view() copies the attributes of dispatch() to the view, but not its decorators. So search both.
    functions = [view] if cls is None else [view, cls.dispatch]
    outermost = {guarded: function for function in functions for guarded in guards_of(function)[:1]}
    for guarded, function in outermost.items():
        if _opens_transaction(around(function, guarded)):
            yield _below(guarded)
    if cls is None or outermost:
        return
    for name, methods in view_classes.answering(view).items():
        # An override may call a guarded method of a base.
        passed = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
        for index, function in enumerate(passed):
            for guarded in guards_of(function)[:1]:
                if _opens_transaction(around(function, guarded)):
                    yield _below(guarded)
                elif any(_opens_transaction(chain(above)) for above in (cls.dispatch, *passed[:index])):
                    yield (
                        f"@transaction.atomic in {where_of(cls)} opens a transaction before the lock of "
                        f"{guarded.where}. {call_context.above_the_class(guarded.options, cls, min(methods))}"
                    )


def _below(guarded: Guarded) -> str:
    return (
        f"@transaction.atomic stands above @{guarded.options} on {guarded.where}: the transaction would be "
        "open before the lock, and be committed after its release. Write @distributed_lock above "
        "@transaction.atomic."
    )


def _opens_transaction(wrappers: Iterable[object]) -> bool:
    """Return whether ``transaction.atomic`` comes before any guard in *wrappers*, the outermost first."""
    for decorator in joined.from_iterable(map(decorators_of, wrappers)):
        if unused(decorator) is not None:
            # *decorator* is a guard that `method_decorator` applies. A transaction below it begins in time.
            return False
        if decorator is transaction.atomic or isinstance(decorator, transaction.Atomic):
            return True
    return False


def hidden_from_django(route: Route) -> Iterator[str]:
    """Yield the error if a decorator hides a guard, so that Django opens a transaction before its lock."""
    view = route.view
    opened = opened_around(view)
    if not opened or route.cls is not None or iscoroutinefunction(view):
        return
    for guarded in guards_of(view)[:1]:
        rule = call_context.as_rule(guarded.options, route.name)
        yield (
            f"{_shown(view)} hides the guard of {guarded.where} from Django, so that ATOMIC_REQUESTS opens "
            f"the transaction of the database {opened[0]!r} before the lock. {rule}"
        )


def on_methods(route: Route) -> Iterator[str]:
    """Yield the errors for guards on methods, if Django opens a transaction around the view."""
    view, cls = route.view, route.cls
    if cls is None or not (opened := opened_around(view)):
        return
    for name, methods in {"dispatch": set[str](), **view_classes.answering(view)}.items():
        for _, guarded in view_classes.guards_on(cls, name):
            action = route.name if hasattr(view, "actions") and name != "dispatch" else None
            line = call_context.above_the_class(guarded.options, cls, min(methods, default=""), action)
            yield (
                f"{guarded.where} is called inside the transaction that ATOMIC_REQUESTS opens on the "
                f"database {opened[0]!r}, and lets its lock go before COMMIT. {line}"
            )


def _shown(view: Any) -> str:
    if inspect.isfunction(view):
        return f"{where_of(view)}, a decorator without functools.wraps,"
    return f"{where_of(type(view))} in the URLconf"
