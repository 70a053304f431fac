"""``DISTLOCK_RULES`` in Flask: a rule stands around the view function that is registered for its endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, chain, guards_of, refuse_unguardable
from distlock.web.guard_options import ALL_BUT_GET, Methods
from distlock.web.rules import Rule, overlaps, passes_by, read_rules, unknown_route
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.placement import served
from flask_distlock.guarding.views import class_of, guards_at, usual_methods_of
from flask_distlock.private import views_of

RULES = "DISTLOCK_RULES"

View = Callable[..., Any]


def with_rules(app: Flask) -> dict[str, View]:
    """The views of *app* by endpoint, with its rules around them. Changes nothing.

    Raises `ConfigurationError` for rules that can't work.
    """
    views: dict[str, View] = dict(views_of(app))
    rules = read_rules(app.config.get(RULES))
    for problem in overlaps(rules):
        raise problem
    # The first of several rules is the outermost.
    for rule in reversed(rules):
        if rule.route not in views:
            raise unknown_route(rule, views)
        views[rule.route] = _around(views[rule.route], rule)
    for rule in rules:
        if not rule.only_this_route:
            _refuse_others(app, views, rule)
    return views


def _refuse_others(app: Flask, views: Mapping[str, View], rule: Rule) -> None:
    """Raise `ConfigurationError` if another endpoint has the view of *rule* without its lock."""
    served_here = _served(views_of(app)[rule.route])
    locked = rule.told.locked_methods(_usual(views[rule.route])) or ALL_BUT_GET
    for endpoint, view in views_of(app).items():
        if endpoint == rule.route or served_here is None or _served(view) is not served_here:
            continue
        for route in app.url_map.iter_rules(endpoint):
            for method in filter(locked.__contains__, served(route)):
                at = guards_at(views[endpoint], method)
                if not any(locks is None or method in locks for _, locks in at):
                    raise passes_by(
                        rule,
                        f"{method} {route.rule} runs the same view as {endpoint!r}",
                        f'{{"route": "{endpoint}", …}}',
                    )


def _served(view: View) -> object:
    """Return the class or the innermost function of *view*; None: one of Flask's own serves many routes."""
    innermost = class_of(view) or list(chain(view))[-1]
    return None if str(getattr(innermost, "__module__", "")).partition(".")[0] == "flask" else innermost


def refuse_replaced(app: Flask, ruled: Mapping[str, View], endpoint: str | None) -> None:
    """Raise `ConfigurationError` if the view of *endpoint* was put in the place of the one with its rules."""
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


def _around(view: View, rule: Rule) -> View:
    refuse_unguardable(view)

    def with_the_routes_arguments(**arguments: Any) -> Any:
        # Not those of the view itself: decorators in between may change them.
        return view(**arguments)

    guarded = Guarded(with_the_routes_arguments, rule.told, methods=_usual(view), when=rule.when)
    guarded.where = str(rule)
    return wrap(view, guarded)


def _usual(view: View) -> Methods:
    """Return the methods that a rule locks on *view* unless it names some."""
    cls = class_of(view)
    return ALL_BUT_GET if cls is None else usual_methods_of(cls)
