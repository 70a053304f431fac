"""The guard around any view that a URLconf may name: a function, or what ``as_view()`` of a class gives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.utils.decorators import classonlymethod

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, When
from distlock.web.guard_options import ALL_BUT_GET, Methods
from django_distlock.guarding.functions import guard_function, wrap
from django_distlock.guarding.usual_methods import usual_methods_of
from django_distlock.guarding.viewclasses import guarded_callback, is_view_class, methods_of, view_class
from django_distlock.private_of_others import is_rest


def guard_view(
    callback: Callable[..., Any],
    told: Told,
    *,
    methods: Methods | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """*callback*, guarded: what the decorator does at the outermost place.

    *methods*: what is locked where *told* does not say; None: every HTTP method. Of a class its usual ones
    are. *when*: called with the request and the view's arguments; false: this request runs as if the guard
    were not there. Raises `ConfigurationError` for what can never work.
    """
    cls = view_class(callback)
    if cls is None:
        return guard_function(callback, told, methods=methods, when=when)
    if not is_rest(cls):
        return wrap(guarded_callback(callback, told, methods=methods, when=when), callback)
    from django_distlock.guarding import rest

    return rest.guard_callback(callback, told, methods=methods, when=when)


def guard_class(cls: type, told: Told) -> type:
    """*cls*, whose ``as_view()`` gives guarded views; so does that of its subclasses."""
    if not is_view_class(cls):
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} is a class, and no view: write @{told} above one of its "
            "methods."
        )
    # Around all of the view: a subclass may have a dispatch() or a setup() of its own.
    inherited = inspect.getattr_static(cls, "as_view")

    def as_view(klass: type, *args: Any, **initkwargs: Any) -> Callable[..., Any]:
        callback: Callable[..., Any] = inherited.__get__(None, klass)(*args, **initkwargs)
        if hasattr(callback, "actions"):
            usual = usual_methods_of(callback, view_class(callback))
            if (told.locked_methods(usual) or usual).isdisjoint(frozenset(methods_of(callback) or ())):
                # A view set has many routes, and some only read.
                return callback
        if view_class(callback) is None:
            raise ConfigurationError(
                f"as_view() of {klass.__module__}.{klass.__qualname__} gives a function that does not say "
                "whose view it is: a decorator in it needs functools.wraps."
            )
        return guard_view(callback, told, methods=ALL_BUT_GET)

    functools.update_wrapper(as_view, inherited.__func__)
    cls.as_view = classonlymethod(as_view)  # type: ignore[attr-defined]
    return cls
