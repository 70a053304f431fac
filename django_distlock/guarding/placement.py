"""Finds out what a guard is on: a plain function, a view, a class's ``dispatch``, or a handler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

from django.http import HttpRequest
from django.views import View

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.decorator import Guarded, chain, guards_of, outermost, refuse_hidden
from django_distlock.guarding.advice import (
    above_the_class,
    around_everything,
    async_in_rest,
    below_api_view,
    too_early,
)
from django_distlock.guarding.transactions import EveryAlias
from django_distlock.guarding.viewclasses import (
    TOO_EARLY,
    guards_below_api_view,
    handlers,
    locks_usually,
    methods_of_view,
    never_awaited,
    refuse_useless,
    refuse_useless_method,
    usual_methods_in,
)
from django_distlock.private import is_bound_by_method_decorator, opted_out
from django_distlock.private_of_others import django_request, is_rest

_METHODS: tuple[type[Any], ...] = (FunctionType, classmethod, functools.partialmethod)


@dataclass(frozen=True, slots=True)
class Standing:
    """The circumstances of one call of a guarded function."""

    kind: Literal["function", "view", "dispatch", "handler"]
    #: Django's request, or REST framework's wrapper around it; None for a function without one.
    request: Any = None
    #: Django's, which may be inside of *request*.
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
    ) -> Standing:
        """Return the circumstances of a call with *args* and *kwargs*.

        Raises `ConfigurationError` if the guard is too far inside, or could never lock.

        *owner*: the object to which the function is already bound as a method, or None. *takes_self*: the
        function is certainly a method. Else it is searched in the class of its first argument, where a
        decorator may hide it.
        """
        first = args[0] if args else kwargs.get("request")
        if isinstance(first, HttpRequest) and owner is None:
            # The most frequent call needs no search.
            match = first.resolver_match
            if (match is not None and outermost(match.func) is guarded) or _is_the_view(guarded, first, None):
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
            if name in TOO_EARLY:
                raise ConfigurationError(too_early(guarded, type(owner)))
            if name == "dispatch":
                if never_awaited(type(owner), handlers(owner)):
                    raise ConfigurationError(async_in_rest(guarded.told, type(owner)))
                refuse_useless(guarded, type(owner), methods_of_view(owner), usual_methods_in(owner))
                return cls("dispatch", request, http, owner, is_method)
            if name in handlers(owner):
                refuse_useless_method(guarded, handlers(owner)[name])
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
            return self.view is None or self.kind != "dispatch" or locks_usually(self.view, method)
        if method in guarded.methods:
            return True
        # Another handler has called the one that is locked, as FormView.put() calls post().
        name = getattr(guarded.function, "__name__", "")
        called = self.kind == "handler" and self.view is not None and method not in handlers(self.view)[name]
        return called and guarded.told.mode != READ

    def line(self, guarded: Guarded) -> str:
        """Return the line to write if a transaction is open before the lock."""
        match = getattr(self.request, "resolver_match", None)
        if self.kind != "handler":
            if self.view is None:
                return around_everything(guarded.told, self.request)
            return above_the_class(guarded.told, type(self.view), "", None)
        route = match.view_name if match is not None and hasattr(self.view, "action_map") else None
        return above_the_class(guarded.told, type(self.view), self.request.method, route)

    @property
    def is_rest(self) -> bool:
        """Whether a method of a REST framework view is called."""
        return self.view is not None and is_rest(type(self.view))

    @property
    def is_async(self) -> bool:
        """Whether a plain function may return a coroutine, as `View.dispatch` of an async view does."""
        return self.view is not None and self.view.view_is_async

    def opted_out(self, every: EveryAlias) -> EveryAlias:
        """Return *every* and the aliases of the class's dispatch(), which `method_decorator` leaves out."""
        if self.view is None:
            return every
        return EveryAlias({*every, *opted_out(type(self.view).dispatch)})


def _django_request(value: object) -> HttpRequest | None:
    """Return *value* if it is Django's request, or the one inside of REST framework's; else None."""
    inner: object = django_request(value)
    return inner if isinstance(inner, HttpRequest) else None


def bound_method(function: Callable[..., Any]) -> Any:
    """Return the bound method that `method_decorator` makes for each call, if *function* wraps one."""
    return next(filter(is_bound_by_method_decorator, chain(function)), None)


def _is_method_of(guarded: Guarded, args: tuple[Any, ...]) -> bool:
    """Return whether the first of *args*, with which *guarded* is called, is its ``self`` or ``cls``."""
    first = args[0]
    if isinstance(first, View) and len(args) > 1 and _django_request(args[1]) is not None:
        # Also where a decorator that does not say what it wraps stands above the guard.
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
    calls the view directly.
    """
    match = getattr(request, "resolver_match", None)
    if match is None:
        return owner is None
    return guarded in guards_of(match.func) or guarded in guards_below_api_view(match.func)
