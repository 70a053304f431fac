"""Which guards a request to a registered view passes, and which HTTP methods each of them locks there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flask import current_app, has_request_context, request
from flask.views import MethodView, View

from distlock.web.decorator import UNSAFE_METHODS, Guarded, guards_of

#: None: every HTTP method.
Methods = frozenset[str] | None

_AS_VIEW = f"{View.as_view.__qualname__}.<locals>.view"


def guards_at(view: Callable[..., Any], method: str) -> Iterator[tuple[Guarded, Methods]]:
    """The guards that a request with *method* to *view* passes, each with what it locks there.

    The outermost comes first. Those on a class, and on the method of it that answers, are among them.
    """
    cls = class_of(view)
    for guarded in guards_of(view):
        yield guarded, _or_told(guarded, None if cls is None else UNSAFE_METHODS)
    if cls is None:
        return
    for guarded in guards_of(cls.dispatch_request):
        yield guarded, _or_told(guarded, UNSAFE_METHODS)
    if issubclass(cls, MethodView):
        for guarded in guards_of(handler_of(cls, method)):
            yield guarded, _or_told(guarded, frozenset({method}))


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
    found: bool | None = None
    for one, methods in () if view is None else guards_at(view, request.method):
        if one is guarded:
            found = found or methods is None or request.method in methods
    return found


def handler_of(cls: type[MethodView], method: str) -> Any:
    """The method of *cls* that answers *method*."""
    return getattr(cls, handler_name(cls, method), None)


def handler_name(cls: type[MethodView], method: str) -> str:
    """The name of the method of *cls* that answers *method*."""
    # Flask answers HEAD by running 'get', unless there is a 'head'.
    return "get" if method == "HEAD" and getattr(cls, "head", None) is None else method.lower()


def _or_told(guarded: Guarded, methods: Methods) -> Methods:
    return methods if guarded.methods is None else guarded.methods
