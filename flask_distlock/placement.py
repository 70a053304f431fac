"""What is seen at an app's first request, when all routes are known: decorators in the wrong place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from flask import Flask

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, chain, guards_of, unused

#: Functions that a guard stands on. Not the guards: one above ``@app.route`` may be gone when we look.
_guarded: WeakSet[Callable[..., Any]] = WeakSet()


def remember(function: Callable[..., Any]) -> None:
    """A guard stands on *function*."""
    _guarded.update(chain(function))


def check_placement(app: Flask) -> None:
    """Raise `ConfigurationError` for a guard that a request would go past, or whose name can't be made."""
    covered = {
        id(inner)
        for view in app.view_functions.values()
        for guarded in guards_of(view)
        for inner in chain(guarded.function)
    }
    for endpoint, view in app.view_functions.items():
        if (problem := unused(view)) is not None:
            raise ConfigurationError(problem)
        if view in _guarded and id(view) not in covered:
            raise ConfigurationError(
                f"@distributed_lock stands above @app.route on the view {endpoint!r}, so that requests go "
                "past it: write it below."
            )
    for rule in app.url_map.iter_rules():
        if rule.endpoint not in app.view_functions:
            continue
        view = app.view_functions[rule.endpoint]
        for guarded in guards_of(view):
            _check_methods(guarded, rule.rule, rule.methods or set())
            if guarded.wrapper is view:
                # Other decorators in between may add arguments: those are looked at when it is called.
                _check_arguments(guarded, rule.rule, rule.arguments | set(rule.defaults or ()))


def _check_methods(guarded: Guarded, rule: str, methods: set[str]) -> None:
    wanted = guarded.methods
    if wanted is not None and wanted.isdisjoint(methods):
        raise ConfigurationError(
            f"{guarded.where} locks {', '.join(sorted(wanted))}, but the route {rule!r} takes only "
            f"{', '.join(sorted(methods))}: it would never lock."
        )


def _check_arguments(guarded: Guarded, rule: str, arguments: set[str]) -> None:
    for template, source in guarded.names.required():
        if source not in arguments:
            known = ", ".join(sorted(arguments)) or "none"
            raise ConfigurationError(
                f"{guarded.where} is locked on {template.text!r}, but the route {rule!r} has no {source!r} "
                f"(it has: {known})."
            )
