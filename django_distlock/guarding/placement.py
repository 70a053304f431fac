"""Where a guard stands: on a function, on a view, on a class's ``dispatch``, on one of its methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.http import HttpRequest
from django.views import View

from distlock.errors import ConfigurationError
from distlock.web.decorator import UNSAFE_METHODS, Guarded, chain, guards_of
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
    is_rest,
    methods_of_view,
    never_awaited,
    refuse_useless,
    refuse_useless_method,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What one call of a guarded function is."""

    kind: Literal["function", "view", "dispatch", "handler"]
    #: The call's arguments, without the ``self`` of a method.
    args: tuple[Any, ...]
    #: Django's, or that of REST framework around it; None for a function that gets none.
    request: Any = None
    view: View | None = None

    @classmethod
    def of(
        cls, guarded: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, takes_self: bool
    ) -> Standing:
        """Raises `ConfigurationError` where the guard stands too far inside, or could never lock."""
        function = guarded.function
        owner, given = (args[0], args[1:]) if takes_self and args else (_owner(function), args)
        first = given[0] if given else kwargs.get("request")
        request = first if is_request(first) else None
        if request is not None and isinstance(owner, View):
            name = getattr(function, "__name__", "")
            if name in TOO_EARLY:
                raise ConfigurationError(too_early(guarded, type(owner)))
            if name == "dispatch":
                if never_awaited(type(owner), handlers(owner)):
                    raise ConfigurationError(async_in_rest(guarded.told, type(owner)))
                refuse_useless(guarded, type(owner), methods_of_view(owner), UNSAFE_METHODS)
                return cls("dispatch", given, request, owner)
            if name in handlers(owner):
                refuse_useless_method(guarded, handlers(owner)[name])
                return cls("handler", given, request, owner)
        elif request is not None and _is_the_view(guarded, request, owner):
            if not isinstance(request, HttpRequest):
                raise ConfigurationError(below_api_view(guarded))
            return cls("view", given, request)
        guarded.refuse_methods()
        return cls("function", given, request)

    def line(self, guarded: Guarded) -> str:
        """What to write where a transaction is open before the lock."""
        match = getattr(self.request, "resolver_match", None)
        if self.kind != "handler":
            if self.view is None:
                return around_everything(guarded.told, self.request)
            return above_the_class(guarded.told, type(self.view), "", None)
        route = match.view_name if match is not None and hasattr(self.view, "action_map") else None
        return above_the_class(guarded.told, type(self.view), self.request.method, route)

    @property
    def is_rest(self) -> bool:
        """Whether it is a method of a view of REST framework."""
        return self.view is not None and is_rest(type(self.view))

    @property
    def is_async(self) -> bool:
        """Whether a function that is no ``async def`` gives a coroutine, as `View.dispatch` may."""
        return self.kind == "dispatch" and self.view is not None and self.view.view_is_async

    def opted_out(self, every: EveryAlias) -> EveryAlias:
        """*every*, with what the site opted out for the class: `method_decorator` does not hand it down."""
        if self.view is None:
            return every
        return EveryAlias({*every, *getattr(type(self.view).dispatch, "_non_atomic_requests", ())})


def is_request(value: object) -> bool:
    """Whether *value* is Django's request, or that of REST framework around it."""
    return isinstance(value, HttpRequest) or isinstance(getattr(value, "_request", None), HttpRequest)


def is_method(function: Callable[..., Any]) -> bool:
    """Whether *function* is written as a method: its first argument is not the caller's."""
    if bound_method(function) is not None:
        return False
    return next(iter(inspect.signature(function).parameters), "") in {"self", "cls"}


def bound_method(function: Callable[..., Any]) -> Any:
    """What `method_decorator` makes of a method, for each call, if *function* wraps that."""
    for one in chain(function):
        if isinstance(one, functools.partial) and inspect.ismethod(one.func):
            return one
    return None


def _owner(function: Callable[..., Any]) -> object:
    bound = bound_method(function)
    return None if bound is None else bound.func.__self__


def _is_the_view(guarded: Guarded, request: Any, owner: object) -> bool:
    """Whether the URLconf leads to this function: others that get a request are helpers of some view.

    *owner*: whose method it is, None if nobody's. A request that was routed nowhere is a test's: it calls the
    view by itself.
    """
    match = getattr(request, "resolver_match", None)
    if match is None:
        return owner is None
    return guarded in guards_of(match.func) or guarded in guards_below_api_view(match.func)
