"""Finds out what a guard is on: a plain function, a view, a class's ``dispatch``, or a handler.

This module also has the texts of errors about guards that could not work there, with the line to write
instead.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

from django.http import HttpRequest
from django.views import View

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.guard_marks import Guarded, chain, guards_of, outermost_guard, refuse_hidden
from distlock.web.guard_options import EVERY, READING_METHODS, AllBut, GuardOptions
from distlock.web.names.bound_names import where_of
from distlock.web.settings.problems import DEFAULT_ALIAS
from django_distlock.conf import MIDDLEWARE
from django_distlock.guarding import view_classes
from django_distlock.guarding.atomic_requests import OptOuts
from django_distlock.guarding.open_transactions import ABOVE
from django_distlock.private import is_bound_by_method_decorator, opted_out
from django_distlock.private_of_others import django_request, is_rest

_METHODS: tuple[type[Any], ...] = (FunctionType, classmethod, functools.partialmethod)


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of one call of a guarded function."""

    #: "handler": a method of a view class that answers requests, such as ``post``.
    kind: Literal["function", "view", "dispatch", "handler"]
    #: Django's request, or REST framework's wrapper around it; None for a function without one.
    request: Any = None
    #: Django's request, which `request` is or wraps.
    http: HttpRequest | None = None
    view: View | None = None
    #: Whether the first of the call's arguments is the ``self`` or ``cls`` of a method.
    is_method: bool = False

    @classmethod
    def of(
        cls,
        guarded: Guarded,
        owner: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        takes_self: bool = False,
    ) -> CallContext:
        """Return the circumstances of a call with *args* and *kwargs*.

        Raises `ConfigurationError` if the guard is too far inside the view, or could never lock.

        *owner*: the object to which the function is already bound as a method, or None. *takes_self*: whether
        the function is known to be a method. If not, the class of the first argument is searched for it,
        where a decorator may hide it.
        """
        first = args[0] if args else kwargs.get("request")
        if isinstance(first, HttpRequest) and owner is None:
            # The most frequent call needs no search.
            match = first.resolver_match
            is_outermost = match is not None and outermost_guard(match.func) is guarded
            if is_outermost or _is_the_view(guarded, first, None):
                return cls("view", first, first)
            if match is not None and kwargs == match.kwargs and args[1:] == match.args:
                refuse_hidden(guarded, match.func)
            guarded.refuse_methods()
            return cls("function", first, first)
        is_method = owner is None and bool(args) and (takes_self or _is_method_of(guarded, args))
        if is_method:
            owner, first = first, args[1] if len(args) > 1 else kwargs.get("request")
        http = _django_request(first)
        request = None if http is None else first
        if request is not None and isinstance(owner, View):
            name = getattr(guarded.function, "__name__", "")
            if name in view_classes.TOO_EARLY:
                raise ConfigurationError(too_early(guarded, type(owner)))
            if name == "dispatch":
                if view_classes.never_awaited(type(owner), view_classes.handlers(owner)):
                    raise ConfigurationError(async_in_rest(guarded.options, type(owner)))
                view_classes.refuse_useless(
                    guarded,
                    type(owner),
                    view_classes.methods_of_view(owner),
                    view_classes.usual_methods_in(owner),
                )
                return cls("dispatch", request, http, owner, is_method)
            if name in view_classes.handlers(owner):
                view_classes.refuse_useless_method(guarded, view_classes.handlers(owner)[name])
                return cls("handler", request, http, owner, is_method)
        elif request is not None and _is_the_view(guarded, request, owner):
            if not isinstance(request, HttpRequest):
                raise ConfigurationError(below_api_view(guarded))
            return cls("view", request, http, None, is_method)
        guarded.refuse_methods()
        return cls("function", request, http, None, is_method)

    def locks_method(self, guarded: Guarded, method: str) -> bool:
        """Return whether *guarded* locks requests with *method* in these circumstances."""
        if guarded.methods is None:
            return (
                self.view is None or self.kind != "dispatch" or view_classes.locks_usually(self.view, method)
            )
        if method in guarded.methods:
            return True
        # Another handler has called the one that is locked, as FormView.put() calls post().
        name = getattr(guarded.function, "__name__", "")
        called = (
            self.kind == "handler"
            and self.view is not None
            and method not in view_classes.handlers(self.view)[name]
        )
        return called and guarded.options.mode != READ

    def remedy(self, guarded: Guarded) -> str:
        """Return the remedy if a transaction is open before the lock."""
        match = getattr(self.request, "resolver_match", None)
        if self.kind != "handler":
            if self.view is None:
                return around_everything(guarded.options, self.request)
            return above_the_class(guarded.options, type(self.view))
        route = match.view_name if match is not None and hasattr(self.view, "action_map") else None
        return above_the_class(guarded.options, type(self.view), self.request.method, route)

    @property
    def is_rest(self) -> bool:
        """Whether a method of a REST framework view is called."""
        return self.view is not None and is_rest(type(self.view))

    @property
    def is_async(self) -> bool:
        """Whether the view is async, so that its plain ``dispatch()`` returns a coroutine."""
        return self.view is not None and self.view.view_is_async

    def opted_out(self, opt_outs: OptOuts) -> OptOuts:
        """Return *opt_outs* with the databases that dispatch() of the class has opted out of.

        A guard inside `method_decorator` does not see what decorators above it have set.
        """
        if self.view is None:
            return opt_outs
        return OptOuts({*opt_outs, *opted_out(type(self.view).dispatch)})


def _django_request(value: object) -> HttpRequest | None:
    """Return *value* if it is Django's request, or the request that REST framework's wraps; else None."""
    inner: object = django_request(value)
    return inner if isinstance(inner, HttpRequest) else None


def bound_method(function: Callable[..., Any]) -> Any:
    """Return the bound method that `method_decorator` makes for each call; None if *function* wraps none."""
    return next(filter(is_bound_by_method_decorator, chain(function)), None)


def _is_method_of(guarded: Guarded, args: tuple[Any, ...]) -> bool:
    """Return whether the first of *args*, with which *guarded* is called, is its ``self`` or ``cls``."""
    first = args[0]
    if isinstance(first, View) and len(args) > 1 and _django_request(args[1]) is not None:
        # This holds even if a decorator above the guard hides what it wraps.
        return True
    return _has_method(first if isinstance(first, type) else type(first), guarded)


def _has_method(cls: Any, guarded: Guarded) -> bool:
    """Return whether *guarded* is a method of *cls*, under any name."""
    return any(
        guarded in guards_of(member)
        for base in cls.__mro__
        for member in tuple(vars(base).values())
        if isinstance(member, _METHODS)
    )


def _is_the_view(guarded: Guarded, request: Any, owner: object) -> bool:
    """Return whether the URLconf routes *request* to this function, not to a view that calls it.

    *owner*: the object whose method the function is, or None. A request without a route is from a test that
    calls the view directly, and a method is not a view then.
    """
    match = getattr(request, "resolver_match", None)
    if match is None:
        return owner is None
    return guarded in guards_of(match.func) or guarded in view_classes.guards_below_api_view(match.func)


def above_the_class(options: GuardOptions, cls: type, method: str = "", route: str | None = None) -> str:
    """Return the remedy for a guard on a method of *cls*: to write it above the class, or as a rule.

    *method*: the HTTP method that the guarded method answers; '' for ``dispatch``. *route*: the name of the
    route, if it leads to an action of a view set: then the remedy is a rule.
    """
    if route:
        # Above the class, the guard would also lock other actions, whose routes may lack its arguments.
        return (
            f'Leave it out there, and write DISTLOCK_RULES = [{{"route": {route!r}, '
            f'{_every_if_get(options, method)}"lock": …}}].'
        )
    return f"Write @{_on_class(options, method)} above the class {cls.__name__}."


def _on_class(options: GuardOptions, method: str) -> str:
    """Return the guard to write above the class in place of one on the handler of *method*."""
    reads = method in READING_METHODS
    if not method or (options.mode == READ and reads):
        return str(options)
    if options.mode == READ:
        return view_classes.with_methods(options, method)
    # Other handlers may call this one, so naming *method* alone would lock less than before.
    return view_classes.with_methods(options, EVERY) if reads else view_classes.without_methods(options)


def _every_if_get(options: GuardOptions, method: str) -> str:
    """Return the ``methods`` of a rule that replaces the guard on the handler of *method*, or ''."""
    return f'"methods": ["{EVERY}"], ' if options.mode != READ and method in READING_METHODS else ""


def async_in_transaction(guarded: Guarded, opt_outs: OptOuts, on_class: bool) -> Iterator[str]:
    """Yield an error for each database with ``ATOMIC_REQUESTS`` that an async view has not opted out of.

    Django refuses such a view, but no longer once a guard marks it. *on_class*: whether the view is a class.
    """
    line = "@transaction.non_atomic_requests above it"
    if on_class:
        line = '@method_decorator(transaction.non_atomic_requests, name="dispatch") above the class'
    for alias in opt_outs.atomic_requests():
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


def async_in_rest(options: GuardOptions, cls: type) -> str:
    return (
        f"{where_of(cls)} is an async view of REST framework, which @{options} does not guard: write 'def', "
        "or 'async with locks.lock(…):' in its methods if its dispatch() awaits them."
    )


def below_api_view(guarded: Guarded) -> str:
    return f"@distributed_lock stands below @api_view on {guarded.where}: write it above."


def too_early(guarded: Guarded, cls: type) -> str:
    """Return the error for a guard on a method that returns before the handler runs."""
    return (
        f"{guarded.where} returns before the view runs, and gives the lock back: write @{guarded.options} "
        f"above the class {cls.__name__}."
    )


def around_everything(options: GuardOptions, request: Any) -> str:
    """Return the remedy for a guard inside a transaction that other code opened. *request*: the call's."""
    if (match := getattr(request, "resolver_match", None)) is None:
        return ABOVE
    rule = as_rule(options, match.view_name, on_class=view_classes.view_class(match.func) is not None)
    return f"{ABOVE} Or lock the route, around all of them. {rule}"


def as_rule(options: GuardOptions, route: str | None, *, on_class: bool = False) -> str:
    """Return the advice to replace the guard *options* by a rule for *route*, which is above all decorators.

    *on_class*: whether the guard is on a class. On a function it locks every method.
    """
    # A rule can't quote callables that make names, so the site has to fill them in.
    names = [json.dumps(text) if (text := getattr(one, "text", "")) else "…" for one in options.names.sources]
    written: dict[str, object] = {"route": route or "…"}
    locked = options.methods
    if isinstance(locked, AllBut) or (locked is None and options.mode != READ and not on_class):
        written["methods"] = [EVERY]
    elif locked is not None:
        written["methods"] = sorted(locked)
    if options.alias != DEFAULT_ALIAS:
        written["alias"] = options.alias
    written |= {
        word: value
        for word in ("timeout", "ttl", "max_hold", "fence", "batch", "limit")
        if (value := getattr(options, word)) is not None
    }
    if options.mode == READ:
        written["mode"] = "shared"
    line = json.dumps(written, ensure_ascii=False).replace("true", "True").replace("false", "False")
    lock = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    name = "" if route else " Give the route a name, and write that in it."
    return (
        f'Write DISTLOCK_RULES = [{line[:-1]}, "lock": {lock}}}] instead of the decorator, with '
        f"{MIDDLEWARE!r} in MIDDLEWARE.{name}"
    )
