"""The guard around any view that a URLconf may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distlock.web.decorator import Told, When
from django_distlock.guarding.classes import guard_callback
from django_distlock.guarding.functions import guard_function
from django_distlock.guarding.viewclasses import is_rest, view_class


def guard_view(
    callback: Callable[..., Any],
    told: Told,
    *,
    methods: frozenset[str] | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """*callback*, guarded: what the decorator does at the outermost place.

    *methods*: what is locked where *told* does not say; None: every HTTP method. *when*: called with the
    request and the view's arguments; false: this request runs as if the guard were not there. Raises
    `ConfigurationError` for what can never work.
    """
    cls = view_class(callback)
    if cls is None:
        return guard_function(callback, told, methods=methods, when=when)
    if not is_rest(cls):
        return guard_callback(callback, told, methods=methods, when=when)
    from django_distlock.guarding import rest

    return rest.guard_callback(callback, told, methods=methods, when=when)
