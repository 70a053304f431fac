"""Finds the guards that a request to a registered view passes, and the HTTP methods that each locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flask import current_app, has_request_context, request
from flask.views import MethodView, View

from distlock.web.decorator import Guarded, chain, guards_of
from distlock.web.guard_options import ALL_BUT_GET, READING_METHODS, AllBut, Methods
from flask_distlock.private import views_of


def guards_at(view: Callable[..., Any], method: str) -> Iterator[tuple[Guarded, Methods | None]]:
    """Yield the guards that a request with *method* to *view* passes, the outermost first.

    Each comes with the HTTP methods that it locks; None: all. Guards on the class, and on the method that
    answers, are included.
    """
    cls = class_of(view)
    for guarded in guards_of(view):
        yield guarded, _or_told(guarded, None if cls is None else usual_methods_of(cls))
    if cls is None:
        return
    for guarded in guards_of(cls.dispatch_request):
        yield guarded, _or_told(guarded, usual_methods_of(cls))
    if issubclass(cls, MethodView):
        for guarded in guards_of(handler_of(cls, method)):
            yield guarded, _or_told(guarded, frozenset({method}))


def is_locked(view: Callable[..., Any], method: str) -> bool:
    """Return whether a guard locks a request with *method* to *view*."""
    return any(methods is None or method in methods for _, methods in guards_at(view, method))


def class_of(view: Callable[..., Any]) -> type[View] | None:
    """Return the class whose ``as_view()`` made *view*."""
    cls = getattr(view, "view_class", None)
    return cls if isinstance(cls, type) and issubclass(cls, View) else None


def usual_methods_of(cls: type[View]) -> Methods:
    """Return the HTTP methods that a guard on all of *cls* locks if it names none.

    Of a `MethodView` these are all but GET, and HEAD if ``get`` answers it. A ``dispatch_request`` of the
    site may do anything with HEAD, so HEAD is locked. The automatic OPTIONS of Flask runs no view.
    """
    if decides_itself(cls):
        return ALL_BUT_GET
    head_is_get = getattr(cls, "head", None) in (None, getattr(cls, "get", None))
    return AllBut(READING_METHODS) if head_is_get else ALL_BUT_GET


def decides_itself(cls: type[View]) -> bool:
    """Return whether the site's own ``dispatch_request`` chooses the method that answers a request."""
    return not issubclass(cls, MethodView) or not all(map(_is_flasks, chain(cls.dispatch_request)))


def _is_flasks(function: Callable[..., Any]) -> bool:
    # functools.wraps() copies __module__, but not the globals.
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    return module.partition(".")[0] in {"flask", "flask_distlock"}


def inherited_at(cls: type[View], method: str) -> Iterator[tuple[str, Guarded, Methods]]:
    """Yield the guards on base methods that *cls* overrides, for requests with *method*.

    Each comes with the name of the method, and the HTTP methods that it locks. An override without a guard
    of its own is still to be locked.
    """
    names: dict[str, Methods] = {"dispatch_request": usual_methods_of(cls)}
    if issubclass(cls, MethodView):
        names[handler_name(cls, method)] = frozenset({method})
    for name, methods in names.items():
        own, *bases = [guards_of(vars(base)[name]) for base in cls.__mro__ if name in vars(base)] or [[]]
        # If the override has a guard of its own, that one decides.
        for guarded in () if own else next(filter(None, bases), ()):
            yield name, guarded, guarded.methods or methods


def locked_as_view(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return whether *guarded* locks this call of the request's view; None: it is another call.

    Helpers that a view calls are not the view, nor is a function below a decorator that hides it.
    """
    if not has_request_context() or request.endpoint is None:
        return None
    view = views_of(current_app).get(request.endpoint)
    place = view, request.method
    try:
        locks = guarded.locks_at[place]
    except KeyError:
        locks = None if view is None else _locks(guarded, view, request.method)
        guarded.locks_at[place] = locks
    if locks is None and view is not None and args and isinstance(args[0], View) and class_of(view) is None:
        # A class with its own as_view() may make views that don't refer to it.
        here = guarded in guards_of(type(args[0]).dispatch_request)
        locks = True if here and request.method in (guarded.methods or ALL_BUT_GET) else None
    if locks and guarded.when is not None:
        return bool(guarded.when(request, **kwargs))
    return locks


def _locks(guarded: Guarded, view: Callable[..., Any], method: str) -> bool | None:
    """Return whether *guarded* locks *method* of *view*; None: requests to *view* don't pass *guarded*."""
    found = [methods for one, methods in guards_at(view, method) if one is guarded]
    if found:
        return any(methods is None or method in methods for methods in found)
    cls = class_of(view)
    inherited = () if cls is None else inherited_at(cls, method)
    return next((method in methods for _, one, methods in inherited if one is guarded), None)


def handler_of(cls: type[MethodView], method: str) -> Any:
    """Return the method of *cls* that answers *method*."""
    return getattr(cls, handler_name(cls, method), None)


def handler_name(cls: type[MethodView], method: str) -> str:
    """Return the name of the method of *cls* that answers *method*."""
    # Flask answers HEAD by `get`, unless the class has `head`.
    return "get" if method == "HEAD" and getattr(cls, "head", None) is None else method.lower()


def _or_told(guarded: Guarded, methods: Methods | None) -> Methods | None:
    return methods if guarded.methods is None else guarded.methods
