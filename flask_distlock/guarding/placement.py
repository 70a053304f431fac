"""Finds misplaced guards at an app's first request, when all routes are known."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from flask import Flask
from flask.views import MethodView, View
from werkzeug.routing import Rule as Route

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.decorator import (
    Guarded,
    chain,
    enclosed,
    guards_of,
    passes_on,
    reached,
    refuse_unguardable,
    told_of,
    unused,
)
from distlock.web.guard_options import EVERY_METHOD, Methods, written
from distlock.web.results import refuse_skipping_view
from flask_distlock import private
from flask_distlock.guarding.views import (
    class_of,
    decides_itself,
    guards_at,
    handler_name,
    handler_of,
    is_locked,
    usual_methods_of,
)

#: The functions that have a guard. A guard above ``@app.route`` itself may be gone when this is read.
_guarded: WeakSet[Callable[..., Any]] = WeakSet()

#: The attribute of a decorated class with its guard.
_CLASS_MARK = "__distlock_class__"


def remember(function: Callable[..., Any]) -> None:
    """Note that a guard is on *function*."""
    for one in chain(function):
        _guarded.add(one)
        _guarded.update(_hidden_in(one))


def remember_class(cls: type[View], guarded: Guarded) -> None:
    """Note that *guarded* is on *cls*."""
    setattr(cls, _CLASS_MARK, guarded)


def check_placement(app: Flask, views: Mapping[str, Callable[..., Any]]) -> list[Guarded]:
    """Return the guards of *app*. *views*: its views, wrapped in those of rules.

    Raises `ConfigurationError` for a guard that requests don't reach, that never locks, or whose names can't
    be filled in.
    """
    _refuse_bypassed(app)
    locks: dict[Guarded, bool] = {}
    last: dict[Guarded, str] = {}
    for route in app.url_map.iter_rules():
        view = views.get(route.endpoint)
        if view is None:
            continue
        exposed = set() if private.may_change_arguments(app, route.endpoint) else set(_exposed(view))
        for method in served(route):
            for guarded, methods in guards_at(view, method):
                refuse_skipping_view(guarded)
                locked = methods is None or method in methods
                # A guard that locks only HEAD, without naming it, is a mistake, too.
                meant = locked and (method != "HEAD" or guarded.told.methods is not None)
                locks[guarded] = locks.get(guarded, False) or meant
                last[guarded] = _never(guarded, methods, route)
                if locked:
                    _refuse_generator(view, method)
                    if guarded in exposed:
                        check_arguments(guarded, route)
            _refuse_replaced(view, method)
    for guarded, ever in locks.items():
        if not ever:
            raise ConfigurationError(last[guarded])
    return list(locks)


def _refuse_bypassed(app: Flask) -> None:
    covered = {
        id(inner)
        for view in private.views_of(app).values()
        for guarded in guards_of(view)
        for inner in chain(guarded.function)
    }
    for endpoint, view in private.views_of(app).items():
        if (problem := unused(view)) is not None:
            raise ConfigurationError(problem)
        if view in _guarded and id(view) not in covered:
            raise ConfigurationError(
                f"@distributed_lock stands above @app.route on the view {endpoint!r}, so that requests go "
                "past it: write it below."
            )
        if (cls := class_of(view)) is not None:
            _refuse_overridden(cls)


def _refuse_overridden(cls: type[View]) -> None:
    guarded = getattr(cls, _CLASS_MARK, None)
    if guarded is not None and guarded not in guards_of(cls.dispatch_request):
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} has a dispatch_request of its own, so that requests go "
            f"past the lock of {guarded.where}: write @{guarded.told} above {cls.__name__}, too."
        )


def _refuse_replaced(view: Callable[..., Any], method: str) -> None:
    """Raise `ConfigurationError` if ``decorators`` of the view's class replace guards of a base."""
    cls = class_of(view)
    if cls is None or is_locked(view, method):
        return
    applied = [told_of(decorator) for decorator in cls.decorators]
    # If False, a decorator without functools.wraps hides the guards below it.
    shown = any(map(private.is_made_by_as_view, chain(view)))
    name = f"{cls.__module__}.{cls.__qualname__}"
    for base in cls.__mro__:
        for told in filter(None, map(told_of, vars(base).get("decorators") or ())):
            usual = usual_methods_of(cls)
            if method not in (told.locked_methods(usual) or usual):
                continue
            if told not in applied:
                theirs = base.__qualname__
                raise ConfigurationError(
                    f"{name} has decorators of its own instead of those of {theirs}, and requests go past "
                    f"the lock of that: write decorators = [*{theirs}.decorators, …], or @{told} above "
                    f"{cls.__name__}."
                )
            if shown:
                raise ConfigurationError(
                    f"The decorators of {name} were changed after its as_view(), so that requests go past "
                    f"@{told}: write them in the class."
                )


def _refuse_generator(view: Callable[..., Any], method: str) -> None:
    cls = class_of(view)
    if cls is not None and issubclass(cls, MethodView):
        refuse_unguardable(handler_of(cls, method))


def _hidden_in(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions that a decorator without `functools.wraps` has replaced by *function*."""
    # Other closures are not decorators, and may contain views that they only call.
    if hasattr(function, "__wrapped__") or not passes_on(function):
        return
    for inner in enclosed(function):
        yield from chain(inner)


def _exposed(view: Callable[..., Any]) -> Iterator[Guarded]:
    """Yield the guards of *view* that get the route's arguments: no other decorator is above them."""
    inner = yield from _outermost(view)
    cls = class_of(view)
    if cls is None or not private.is_made_by_as_view(inner):
        return
    inner = yield from _outermost(cls.dispatch_request)
    if inner is MethodView.dispatch_request:
        for name in private.METHOD_NAMES & set(dir(cls)):
            yield from _outermost(getattr(cls, name))


def _outermost(function: Callable[..., Any]) -> Generator[Guarded, None, Callable[..., Any]]:
    """Yield the guards on *function* that have no other decorator above. Return the function below them."""
    while (guards := guards_of(function)) and guards[0].wrapper is function:
        yield guards[0]
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function


def served(route: Route) -> list[str]:
    """Return the HTTP methods with which *route* runs its view."""
    methods = set(route.methods or ())
    if private.answers_options(route):
        methods.discard("OPTIONS")
    return sorted(methods)


def _never(guarded: Guarded, methods: Methods | None, route: Route) -> str:
    told, leads = written(methods or EVERY_METHOD), ", ".join(served(route))
    return (
        f"{guarded.where} locks {told}, but the route {route.rule!r} leads to it with {leads} only: it "
        "would never lock. Say which methods: methods=[…]."
    )


def check_arguments(guarded: Guarded, route: Route) -> None:
    """Raise `ConfigurationError` if the arguments of *route* can't fill in the names of *guarded*."""
    arguments = route.arguments | set(route.defaults or ())
    for template, source in guarded.names.required():
        if source not in arguments:
            known = ", ".join(sorted(arguments)) or "none"
            raise ConfigurationError(
                f"{guarded.where} is locked on {template.text!r}, but the route {route.rule!r} has no "
                f"{source!r} (it has: {known})."
            )
    converters = private.converters_of(route)
    for template in guarded.names.templates:
        for part in template.placeholders:
            converter = converters.get(part.source)
            if part.converter is None and converter is not None and not private.converts(converter):
                line = template.text.replace(part.text, f"<int:{part.source}>")
                raise ConfigurationError(
                    f"{guarded.where} is locked on {template.text!r}, and the route {route.rule!r} gives "
                    f"text for {part.source!r}: one value could have several locks. Write "
                    f"{line!r}, or 'slug:', 'uuid:' or 'str:'."
                )


def open_methods(app: Flask, views: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    """Yield a warning if guards of *views* name methods, and others reach the same code without them.

    GET is left out, because by convention it only reads.
    """
    for route in app.url_map.iter_rules():
        if (view := views.get(route.endpoint)) is None:
            continue
        cls = class_of(view)
        around = [*guards_of(view), *(guards_of(cls.dispatch_request) if cls is not None else ())]
        guards = [guarded for guarded in around if guarded.told.mode != READ]
        named = [guarded for guarded in guards if isinstance(guarded.told.methods, frozenset)]
        # If a guard or a rule names no methods, it locks all that may write.
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
