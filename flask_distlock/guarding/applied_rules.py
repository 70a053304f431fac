"""Wraps views in the locks of rules, and in the locks of guards on base classes.

A rule wraps the view function that is registered for its endpoint. A guard on a method of a base class also
locks views of subclasses that override the method. If the route's arguments can fill in its names, it wraps
the whole view, like a rule. If not, the override itself has to call the guarded method before it commits.
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
from distlock.web.guard_marks import Guarded, chain, guards_of, options_of, refuse_unguardable
from distlock.web.guard_options import ALL_BUT_GET, Methods
from distlock.web.rules import Rule, overlaps, passes_by, read_rules, unknown_route
from flask_distlock.guarding import view_guards
from flask_distlock.guarding.app_state import current_state
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.request import requiring, status_of
from flask_distlock.private import has_own_as_view, may_change_arguments, views_of

RULES = "DISTLOCK_RULES"

AnyView = Callable[..., Any]


def views_with_locks(app: Flask) -> dict[str, AnyView]:
    """Return the views of *app* by endpoint, wrapped in the locks of rules and base classes.

    The caller has to register them. Raises `ConfigurationError` for rules that can't work.
    """
    _lock_own_views()
    routes: defaultdict[str, list[Route]] = defaultdict(list)
    for route in app.url_map.iter_rules():
        routes[route.endpoint].append(route)
    ruled = _with_rules(app)
    return {endpoint: _inheriting(app, endpoint, view, routes[endpoint]) for endpoint, view in ruled.items()}


def _with_rules(app: Flask) -> dict[str, AnyView]:
    views: dict[str, AnyView] = dict(views_of(app))
    rules = read_rules(app.config.get(RULES))
    for problem in overlaps(rules):
        raise problem
    # The first of several rules is the outermost.
    for rule in reversed(rules):
        if rule.route not in views:
            raise unknown_route(rule, views)
        views[rule.route] = _ruled(views[rule.route], rule)
    for rule in rules:
        if not rule.only_this_route:
            _refuse_others(app, views, rule)
    return views


def _refuse_others(app: Flask, views: Mapping[str, AnyView], rule: Rule) -> None:
    """Raise `ConfigurationError` if another endpoint runs the view of *rule* without its lock."""
    innermost = _innermost(views_of(app)[rule.route])
    locked = rule.options.locked_methods(_usual(views[rule.route])) or ALL_BUT_GET
    for endpoint, view in views_of(app).items():
        if endpoint == rule.route or innermost is None or _innermost(view) is not innermost:
            continue
        for route in app.url_map.iter_rules(endpoint):
            for method in filter(locked.__contains__, view_guards.route_methods(route)):
                if not view_guards.is_locked(views[endpoint], method):
                    raise passes_by(
                        rule,
                        f"{method} {route.rule} runs the same view as {endpoint!r}",
                        f'{{"route": "{endpoint}", …}}',
                    )


def _innermost(view: AnyView) -> object:
    """Return the class or innermost function of *view*; None: Flask's own, which may serve many routes."""
    innermost = view_guards.class_of(view) or list(chain(view))[-1]
    return None if str(getattr(innermost, "__module__", "")).partition(".")[0] == "flask" else innermost


def refuse_replaced(app: Flask, ruled: Mapping[str, AnyView], endpoint: str | None) -> None:
    """Raise `ConfigurationError` if the view of *endpoint* was replaced by one without its locks.

    *ruled*: the views that were wrapped in locks at the first request, by endpoint.
    """
    ours = ruled.get(endpoint or "")
    if ours is None:
        return
    view = views_of(app).get(endpoint or "")
    if view is ours or (view is not None and set(guards_of(ours)) <= set(guards_of(view))):
        return
    raise ConfigurationError(
        f"{RULES}, or the class of the view, lock {endpoint!r}, and app.view_functions[{endpoint!r}] was "
        "replaced when the first request had come, so that requests would go past: replace it before that, "
        "or wrap what is there with functools.wraps."
    )


def _ruled(view: AnyView, rule: Rule) -> AnyView:
    refuse_unguardable(view)

    def with_the_routes_arguments(**arguments: Any) -> Any:
        # Names are filled in from the arguments of this function, because decorators of the view may change
        # the route's arguments.
        return view(**arguments)

    guarded = Guarded(with_the_routes_arguments, rule.options, methods=_usual(view), when=rule.when)
    guarded.where = str(rule)
    return wrap(view, guarded)


def _usual(view: AnyView) -> Methods:
    """Return the HTTP methods that a rule locks on *view* if it names none."""
    cls = view_guards.class_of(view)
    return ALL_BUT_GET if cls is None else view_guards.usual_methods_of(cls)


def _lock_own_views() -> None:
    """Let guards in ``decorators`` also lock views of classes whose own ``as_view()`` may ignore them."""
    for cls in _below(View):
        for options in filter(None, map(options_of, cls.decorators if has_own_as_view(cls) else ())):
            if all(one.options is not options for one in guards_of(cls.dispatch_request)):
                guarded = Guarded(cls.dispatch_request, options)
                guarded.where = f"{cls.__module__}.{cls.__qualname__}"
                # Change the class itself, so that views that exist already are locked, too.
                cls.dispatch_request = wrap(cls.dispatch_request, guarded)  # type: ignore[method-assign]


def _below(cls: type[View]) -> Iterator[type[View]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def _inheriting(app: Flask, endpoint: str, view: AnyView, routes: list[Route]) -> AnyView:
    cls = view_guards.class_of(view)
    if cls is None:
        return view
    found: defaultdict[tuple[str, Guarded], set[str]] = defaultdict(set)
    for method in {method for route in routes for method in view_guards.route_methods(route)}:
        if view_guards.is_locked(view, method):
            continue
        for name, guarded, methods in view_guards.inherited_at(cls, method):
            if method in methods:
                found[name, guarded].add(method)
    for (name, base), these in found.items():
        where = f"{cls.__module__}.{cls.__qualname__}.{name}()"
        around = _guard_around(view, base, frozenset(these), where)
        if not may_change_arguments(app, endpoint) and all(_fills_names(route, around) for route in routes):
            view = wrap(around.function, around)
        else:
            view = _wrap_requiring(view, base, frozenset(these), where)
    return view


def _guard_around(view: AnyView, base: Guarded, methods: Methods, where: str) -> Guarded:
    @functools.wraps(view)
    def with_the_routes_arguments(**arguments: Any) -> Any:
        return current_app.ensure_sync(view)(**arguments)

    # functools.wraps() shows the signature of the view, but names are filled in from the route's arguments.
    with_the_routes_arguments.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
    )
    guarded = Guarded(with_the_routes_arguments, base.options)
    guarded.methods = methods
    guarded.where = where
    return guarded


def _fills_names(route: Route, guarded: Guarded) -> bool:
    """Return whether the arguments of *route* can fill in the names of *guarded*."""
    arguments = dict.fromkeys(route.arguments | set(route.defaults or ()))
    try:
        view_guards.check_arguments(guarded, route)
        for source in guarded.names.sources:
            if inspect.isroutine(source):
                inspect.signature(source).bind(request, **arguments)
    except (ConfigurationError, TypeError):
        return False
    return True


def _wrap_requiring(view: AnyView, base: Guarded, methods: Methods, where: str) -> AnyView:
    @functools.wraps(view)
    def wrapper(**arguments: Any) -> Any:
        if request.method not in methods:
            return current_app.ensure_sync(view)(**arguments)
        with requiring(base, where) as required:
            try:
                result = current_app.ensure_sync(view)(**arguments)
            except HTTPException as error:
                # Flask makes a response of the exception, which is a success if its status is below 400.
                if status_of(error) < 400:
                    required.refuse()
                raise
            else:
                if status_of(result) < 400:
                    required.refuse()
                return result
            finally:
                if not required.passed and (sessions := current_state().sessions) is not None:
                    # Without the rollback, a hook might commit the changes of the unlocked view.
                    sessions.roll_back()

    return wrapper
