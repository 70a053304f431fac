"""Which guards a request to a registered view passes, and which HTTP methods each of them locks there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flask import current_app, has_request_context, request
from flask.views import MethodView, View, http_method_funcs

from distlock.web.decorator import UNSAFE_METHODS, Guarded, guards_of

#: None: every HTTP method.
Methods = frozenset[str] | None

_AS_VIEW = f"{View.as_view.__qualname__}.<locals>.view"


def guards_at(view: Callable[..., Any]) -> Iterator[tuple[Guarded, Methods]]:
    """The guards of *view* and of its class, each with what it locks there, the outermost first."""
    cls = class_of(view)
    for guarded in guards_of(view):
        yield guarded, _or_told(guarded, None if cls is None else UNSAFE_METHODS)
    if cls is None:
        return
    for guarded in guards_of(cls.dispatch_request):
        yield guarded, _or_told(guarded, UNSAFE_METHODS)
    if issubclass(cls, MethodView):
        for name in sorted(http_method_funcs):
            handler = getattr(cls, name, None)
            for guarded in guards_of(handler) if handler is not None else ():
                served = _served_by(cls, name)
                yield guarded, served if guarded.methods is None else served & guarded.methods


def class_of(view: Callable[..., Any]) -> type[View] | None:
    """The class whose ``as_view()`` made *view*."""
    cls = getattr(view, "view_class", None)
    return cls if isinstance(cls, type) and issubclass(cls, View) else None


def is_as_view(function: Callable[..., Any]) -> bool:
    """Whether *function* is what ``as_view()`` makes of a class, before its ``decorators``."""
    return getattr(function, "__qualname__", "") == _AS_VIEW and not hasattr(function, "__wrapped__")


def locked_as_view(guarded: Guarded) -> bool | None:
    """Whether the current request is locked by *guarded*; None: this call is not that of its view.

    A function that some view calls is not, nor is a view that stands below a decorator which hides it.
    """
    if not has_request_context() or request.endpoint is None:
        return None
    view = current_app.view_functions.get(request.endpoint)
    found = [] if view is None else [locked for one, locked in guards_at(view) if one is guarded]
    if not found:
        return None
    return any(methods is None or request.method in methods for methods in found)


def _served_by(cls: type[View], name: str) -> frozenset[str]:
    # Flask answers HEAD by running 'get', unless there is a 'head'.
    return frozenset({"GET", "HEAD"} if name == "get" and not hasattr(cls, "head") else {name.upper()})


def _or_told(guarded: Guarded, methods: Methods) -> Methods:
    return methods if guarded.methods is None else guarded.methods
