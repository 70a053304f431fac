"""The guard around a class-based view, wherever it is made into a view."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.utils.decorators import classonlymethod

from distlock.errors import ConfigurationError
from distlock.web.decorator import UNSAFE_METHODS, Guarded, Told, When
from django_distlock.guarding.functions import wrap
from django_distlock.guarding.viewclasses import (
    is_api_view,
    is_view_class,
    methods_of,
    refuse_useless,
    view_class,
)


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
        from django_distlock.guarding.views import guard_view

        callback: Callable[..., Any] = inherited.__get__(None, klass)(*args, **initkwargs)
        if hasattr(callback, "actions") and (methods_of(callback) or set()).isdisjoint(
            told.methods or UNSAFE_METHODS
        ):
            # A view set has many routes, and some only read.
            return callback
        if view_class(callback) is None:
            raise ConfigurationError(
                f"as_view() of {klass.__module__}.{klass.__qualname__} gives a function that does not say "
                "whose view it is: a decorator in it needs functools.wraps."
            )
        return guard_view(callback, told, methods=UNSAFE_METHODS)

    functools.update_wrapper(as_view, inherited.__func__)
    cls.as_view = classonlymethod(as_view)  # type: ignore[attr-defined]
    return cls


def guard_callback(
    callback: Callable[..., Any],
    told: Told,
    *,
    methods: frozenset[str] | None,
    when: When | None,
) -> Callable[..., Any]:
    """*callback*, which ``as_view()`` gave, guarded."""
    guarded = guarded_callback(callback, told, methods=methods, when=when)
    return wrap(guarded, callback)


def guarded_callback(
    callback: Callable[..., Any],
    told: Told,
    *,
    methods: frozenset[str] | None,
    when: When | None,
) -> Guarded:
    """The guard of *callback*. Raises `ConfigurationError` if it would never lock."""
    cls = view_class(callback)

    def view(request: Any, *args: Any, **kwargs: Any) -> Any:
        # By itself it would be bound by the signature of the dispatch() that it claims to wrap.
        return callback(request, *args, **kwargs)

    # Whether another guard inside sees to the transactions.
    view._non_atomic_requests = getattr(callback, "_non_atomic_requests", set())  # type: ignore[attr-defined]
    guarded = Guarded(view, told, methods=methods, when=when)
    guarded.where = f"{cls.__module__}.{cls.__name__ if is_api_view(cls) else cls.__qualname__}"
    refuse_useless(guarded, cls, methods_of(callback), None)
    return guarded
