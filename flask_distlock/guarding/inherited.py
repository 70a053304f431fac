"""Locks that a class inherits hold in its own views, whatever these call, and however they are made.

Where the route says what to lock, the lock of an overridden method is around the whole view, as a rule's is.
Elsewhere only the override knows, which calls the method: there it has to come to the lock before it commits.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Flask, current_app, request
from flask.views import View
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule as Route

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, guards_of, told_of
from distlock.web.guard_options import Methods
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.placement import check_arguments, served
from flask_distlock.guarding.request import status_of
from flask_distlock.guarding.required import requiring
from flask_distlock.guarding.state import current_state
from flask_distlock.guarding.views import class_of, guards_at, inherited_at
from flask_distlock.private import has_own_as_view, may_change_arguments

Views = dict[str, Callable[..., Any]]


def with_inherited(app: Flask, views: Mapping[str, Callable[..., Any]]) -> Views:
    """*views* by endpoint, with the locks around them that their classes inherit. Changes nothing."""
    routes: defaultdict[str, list[Route]] = defaultdict(list)
    for route in app.url_map.iter_rules():
        routes[route.endpoint].append(route)
    return {endpoint: _locked(app, endpoint, view, routes[endpoint]) for endpoint, view in views.items()}


def lock_own_views() -> None:
    """Let the ``decorators`` of classes that make their views by themselves lock these, too."""
    for cls in _below(View):
        for told in filter(None, map(told_of, cls.decorators if has_own_as_view(cls) else ())):
            if all(one.told is not told for one in guards_of(cls.dispatch_request)):
                guarded = Guarded(cls.dispatch_request, told)
                guarded.where = f"{cls.__module__}.{cls.__qualname__}"
                # In place, as a decorator above the class does it.
                cls.dispatch_request = wrap(cls.dispatch_request, guarded)  # type: ignore[method-assign]


def _below(cls: type[View]) -> Iterator[type[View]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def _locked(app: Flask, endpoint: str, view: Callable[..., Any], routes: list[Route]) -> Callable[..., Any]:
    cls = class_of(view)
    if cls is None:
        return view
    found: defaultdict[tuple[str, Guarded], set[str]] = defaultdict(set)
    for method in {method for route in routes for method in served(route)}:
        if any(methods is None or method in methods for _, methods in guards_at(view, method)):
            continue
        for name, guarded, methods in inherited_at(cls, method):
            if method in methods:
                found[name, guarded].add(method)
    for (name, base), these in found.items():
        where = f"{cls.__module__}.{cls.__qualname__}.{name}()"
        around = _around(view, base, frozenset(these), where)
        if not may_change_arguments(app, endpoint) and all(_says(route, around) for route in routes):
            view = wrap(around.function, around)
        else:
            view = _requiring(view, base, frozenset(these), where)
    return view


def _around(view: Callable[..., Any], base: Guarded, methods: Methods, where: str) -> Guarded:
    @functools.wraps(view)
    def with_the_routes_arguments(**arguments: Any) -> Any:
        return current_app.ensure_sync(view)(**arguments)

    # A name is made of what the route has, and not of what the view says that it takes.
    with_the_routes_arguments.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
    )
    guarded = Guarded(with_the_routes_arguments, base.told)
    guarded.methods = methods
    guarded.where = where
    return guarded


def _says(route: Route, guarded: Guarded) -> bool:
    """Whether the arguments of *route* are what the names of *guarded* are made of."""
    arguments = dict.fromkeys(route.arguments | set(route.defaults or ()))
    try:
        check_arguments(guarded, route)
        for source in guarded.names.sources:
            if inspect.isroutine(source):
                inspect.signature(source).bind(request, **arguments)
    except (ConfigurationError, TypeError):
        return False
    return True


def _requiring(view: Callable[..., Any], base: Guarded, methods: Methods, where: str) -> Callable[..., Any]:
    @functools.wraps(view)
    def wrapper(**arguments: Any) -> Any:
        if request.method not in methods:
            return current_app.ensure_sync(view)(**arguments)
        with requiring(base, where) as required:
            try:
                result = current_app.ensure_sync(view)(**arguments)
            except HTTPException as error:
                # Flask takes one for an answer.
                if status_of(error) < 400:
                    required.refuse()
                raise
            else:
                if status_of(result) < 400:
                    required.refuse()
                return result
            finally:
                if not required.passed:
                    # A hook would commit it.
                    current_state().session.roll_back()

    return wrapper
