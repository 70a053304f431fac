"""HTTP methods that a route takes, and that a guard of its view, which names others, does not lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Flask
from flask.views import MethodView, View
from werkzeug.routing import Rule as Route

from distlock.modes import READ
from distlock.web.decorator import Guarded, guards_of, reached
from flask_distlock.guarding.placement import served
from flask_distlock.guarding.views import class_of, decides_itself, handler_name, usual_methods_of


def open_methods(app: Flask, views: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    """Yield what is wrong where guards of *views* name methods, and other ones reach the same code.

    GET is left out: it only reads by convention.
    """
    for route in app.url_map.iter_rules():
        if (view := views.get(route.endpoint)) is None:
            continue
        cls = class_of(view)
        around = [*guards_of(view), *(guards_of(cls.dispatch_request) if cls is not None else ())]
        guards = [guarded for guarded in around if guarded.told.mode != READ]
        named = [guarded for guarded in guards if isinstance(guarded.told.methods, frozenset)]
        # A guard that names none, or a rule, locks all that may change something.
        if named and len(named) == len(guards):
            yield from _of_route(route, cls, named)


def _of_route(route: Route, cls: type[View] | None, named: list[Guarded]) -> Iterator[str]:
    locked: set[str] = set()
    for guarded in named:
        locked |= guarded.told.methods or set()  # type: ignore[arg-type]
    others = sorted(set(served(route)) - locked - {"GET"})
    where = f"{named[0].where} is locked for {', '.join(sorted(locked))}, and the route {route.rule!r}"
    if cls is None or decides_itself(cls):
        if others:
            line = ", ".join(f'"{method}"' for method in sorted({*locked, *others}))
            yield (
                f"{where} leads to it with {', '.join(others)} as well, without the lock: a client chooses "
                f"the method. Write methods=[{line}] in the guard, or leave {', '.join(others)} out of the "
                "route."
            )
        return
    assert issubclass(cls, MethodView)
    theirs = {handler_name(cls, method) for method in locked.intersection(served(route))}
    for method in others:
        name = handler_name(cls, method)
        if method not in usual_methods_of(cls):
            continue
        same = [one for one in theirs if getattr(cls, one, None) is getattr(cls, name, None)]
        for one in sorted(reached(cls, name) & theirs)[:1] or same[:1]:
            yield (
                f"{where} answers {method} by {one}(), too, which runs without the lock then: a client "
                "chooses the method. Leave methods out, to lock all but GET."
            )
