"""``DISTLOCK_RULES`` in Flask: a rule stands around the view function that is registered for its endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, guards_of, refuse_unguardable
from distlock.web.methods import UNSAFE_METHODS
from distlock.web.rules import Rule, overlaps, read_rules, unknown_route
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.placement import served
from flask_distlock.guarding.views import guards_at
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
        _refuse_twins(app, views, rule)
    return views


def _refuse_twins(app: Flask, views: Mapping[str, View], rule: Rule) -> None:
    """Of a blueprint that is registered twice, where *rule* would lock a view in one of the two places."""
    name, _, local = rule.route.rpartition(".")
    blueprint = app.blueprints.get(name)
    for other, registered in app.blueprints.items():
        twin = f"{other}.{local}"
        if registered is not blueprint or other == name or twin not in views:
            continue
        for route in app.url_map.iter_rules(twin):
            for method in rule.methods.intersection(served(route)):
                if not any(locks is None or method in locks for _, locks in guards_at(views[twin], method)):
                    raise ConfigurationError(
                        f"{RULES} lock {rule.route!r}, and its blueprint is registered a second time as "
                        f"{other!r}, where {method} {route.rule} would run the same view without the lock: "
                        f'write a rule for it, too: {{"route": "{twin}", …}}.'
                    )


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
        "replaced after the first request, so that requests would go past: replace it before that, or wrap "
        "what is there with functools.wraps."
    )


def _around(view: View, rule: Rule) -> View:
    refuse_unguardable(view)

    def with_the_routes_arguments(**arguments: Any) -> Any:
        # Not those of the view itself: decorators in between may change them.
        return view(**arguments)

    guarded = Guarded(with_the_routes_arguments, rule.told, methods=UNSAFE_METHODS, when=rule.when)
    guarded.where = str(rule)
    return wrap(view, guarded)
