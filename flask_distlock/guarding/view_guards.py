"""Finds the guards that a request to a registered view passes, and the HTTP methods that each locks.

At an app's first request, when all routes are known, this module also finds misplaced guards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from flask import Flask, current_app, has_request_context, request
from flask.views import MethodView, View
from werkzeug.routing import Rule as Route

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web import guard_marks
from distlock.web.guard_marks import Guarded, chain, guards_of
from distlock.web.guard_options import ALL_BUT_GET, EVERY_METHOD, READING_METHODS, AllBut, Methods, in_words
from distlock.web.results import refuse_skipping_view
from flask_distlock import private


def guards_at(view: Callable[..., Any], method: str) -> Iterator[tuple[Guarded, Methods | None]]:
    """Yield the guards that a request with *method* to *view* passes, the outermost first.

    Each comes with the HTTP methods that it locks; None: all. The guards on the class of *view*, and on its
    method that answers, are included.
    """
    cls = class_of(view)
    for guarded in guards_of(view):
        yield guarded, _locked_methods(guarded, None if cls is None else usual_methods_of(cls))
    if cls is None:
        return
    for guarded in guards_of(cls.dispatch_request):
        yield guarded, _locked_methods(guarded, usual_methods_of(cls))
    if issubclass(cls, MethodView):
        for guarded in guards_of(handler_of(cls, method)):
            yield guarded, _locked_methods(guarded, frozenset({method}))


def is_locked(view: Callable[..., Any], method: str) -> bool:
    """Return whether a guard locks a request with *method* to *view*."""
    return any(methods is None or method in methods for _, methods in guards_at(view, method))


def class_of(view: Callable[..., Any]) -> type[View] | None:
    """Return the class whose ``as_view()`` made *view*; None: a function is the view."""
    cls = getattr(view, "view_class", None)
    return cls if isinstance(cls, type) and issubclass(cls, View) else None


def usual_methods_of(cls: type[View]) -> Methods:
    """Return the HTTP methods that a guard on all of *cls* locks if it names none.

    They are all except GET, and in a `MethodView` except HEAD if ``get`` answers it. A ``dispatch_request``
    that the site has written may do anything for HEAD, so HEAD is locked there. Flask answers OPTIONS itself,
    without the view.
    """
    if decides_itself(cls):
        return ALL_BUT_GET
    head_is_get = getattr(cls, "head", None) in (None, getattr(cls, "get", None))
    return AllBut(READING_METHODS) if head_is_get else ALL_BUT_GET


def decides_itself(cls: type[View]) -> bool:
    """Return whether *cls* has a ``dispatch_request`` of the site, which may answer requests in any way."""
    return not issubclass(cls, MethodView) or not all(map(_is_flasks, chain(cls.dispatch_request)))


def _is_flasks(function: Callable[..., Any]) -> bool:
    # functools.wraps() copies __module__, but not the globals.
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    return module.partition(".")[0] in {"flask", "flask_distlock"}


def inherited_at(cls: type[View], method: str) -> Iterator[tuple[str, Guarded, Methods]]:
    """Yield the guards on base methods that *cls* overrides without a guard, for requests with *method*.

    The override still has to be locked. Each guard comes with the name of the overridden method, and the HTTP
    methods that the guard locks.
    """
    names: dict[str, Methods] = {"dispatch_request": usual_methods_of(cls)}
    if issubclass(cls, MethodView):
        names[handler_name(cls, method)] = frozenset({method})
    for name, methods in names.items():
        own, *bases = [guards_of(vars(base)[name]) for base in cls.__mro__ if name in vars(base)] or [[]]
        # If the override has a guard of its own, that one decides.
        for guarded in () if own else next(filter(None, bases), ()):
            yield name, guarded, guarded.methods or methods


def locked_as_view(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return whether *guarded* locks this call of the request's view; None: this is no call of the view.

    It may be a call of a helper, or of a view that a decorator without `functools.wraps` hides.
    """
    if not has_request_context() or request.endpoint is None:
        return None
    view = private.views_of(current_app).get(request.endpoint)
    locks = None if view is None else _known(guarded, view, request.method)
    if locks is None and view is not None and args and isinstance(args[0], View) and class_of(view) is None:
        # A class with its own as_view() may make views that don't refer to the class.
        here = guarded in guards_of(type(args[0]).dispatch_request)
        locks = True if here and request.method in (guarded.methods or ALL_BUT_GET) else None
    if locks and guarded.when is not None:
        return bool(guarded.when(request, **kwargs))
    return locks


def _known(guarded: Guarded, view: Callable[..., Any], method: str) -> bool | None:
    """Return what `_locks` returns. Remember it for the usual methods, as long as *view* is in use."""
    try:
        known = guarded.locks_at.setdefault(view, {})
    except TypeError:  # Python can't refer weakly to *view*.
        return _locks(guarded, view, method)
    if method not in known:
        if method.lower() not in private.METHOD_NAMES:
            return _locks(guarded, view, method)
        known[method] = _locks(guarded, view, method)
    return known[method]


def _locks(guarded: Guarded, view: Callable[..., Any], method: str) -> bool | None:
    """Return whether *guarded* locks *method* of *view*; None: requests to *view* don't pass *guarded*."""
    found = [methods for one, methods in guards_at(view, method) if one is guarded]
    if found:
        return any(methods is None or method in methods for methods in found)
    cls = class_of(view)
    inherited = () if cls is None else inherited_at(cls, method)
    return next((method in methods for _, one, methods in inherited if one is guarded), None)


def handler_of(cls: type[MethodView], method: str) -> Any:
    """Return the function of *cls* that answers the HTTP *method*, or None."""
    return getattr(cls, handler_name(cls, method), None)


def handler_name(cls: type[MethodView], method: str) -> str:
    """Return the name of the function of *cls* that answers the HTTP *method*."""
    # Flask answers HEAD by `get`, unless the class has `head`.
    return "get" if method == "HEAD" and getattr(cls, "head", None) is None else method.lower()


def _locked_methods(guarded: Guarded, methods: Methods | None) -> Methods | None:
    return methods if guarded.methods is None else guarded.methods


# -- the check at the first request ------------------------------------------------------------------------

#: The functions that guards were put on. A guard above ``@app.route`` is found by its function alone, because
#: no route refers to the guard.
_functions_with_guards: WeakSet[Callable[..., Any]] = WeakSet()

#: The attribute of a decorated class with its guard.
_CLASS_MARK = "__distlock_class__"


def remember(function: Callable[..., Any]) -> None:
    """Note that a guard was put on *function*, and so on the functions that *function* wraps."""
    for one in chain(function):
        _functions_with_guards.add(one)
        _functions_with_guards.update(_hidden_in(one))


def remember_class(cls: type[View], guarded: Guarded) -> None:
    """Note that *guarded* was put on the class *cls*."""
    setattr(cls, _CLASS_MARK, guarded)


def check_placement(app: Flask, views: Mapping[str, Callable[..., Any]]) -> list[Guarded]:
    """Return the guards that requests to *app* pass.

    *views*: its views by endpoint, wrapped in the locks of rules and base classes. Raises
    `ConfigurationError` for a guard that requests don't pass, that never locks, or whose names can't be
    filled in.
    """
    _refuse_bypassed(app)
    locks: dict[Guarded, bool] = {}
    last: dict[Guarded, str] = {}
    for route in app.url_map.iter_rules():
        view = views.get(route.endpoint)
        if view is None:
            continue
        exposed = set() if private.may_change_arguments(app, route.endpoint) else set(_exposed(view))
        for method in route_methods(route):
            for guarded, methods in guards_at(view, method):
                refuse_skipping_view(guarded)
                locked = methods is None or method in methods
                # A guard without methods= that locks only HEAD is a mistake, too.
                meant = locked and (method != "HEAD" or guarded.options.methods is not None)
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
        if (problem := guard_marks.unused(view)) is not None:
            raise ConfigurationError(problem)
        if view in _functions_with_guards and id(view) not in covered:
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
            f"past the lock of {guarded.where}: write @{guarded.options} above {cls.__name__}, too."
        )


def _refuse_replaced(view: Callable[..., Any], method: str) -> None:
    """Raise `ConfigurationError` if a guard in ``decorators`` should lock *method* of *view*, and does not.

    Then the class has replaced the ``decorators`` of a base, or they were changed after ``as_view()``.
    """
    cls = class_of(view)
    if cls is None or is_locked(view, method):
        return
    applied = list(map(guard_marks.options_of, cls.decorators))
    # If `sees_as_view` is False, a decorator without functools.wraps hides the guards below it.
    sees_as_view = any(map(private.is_made_by_as_view, chain(view)))
    name = f"{cls.__module__}.{cls.__qualname__}"
    for base in cls.__mro__:
        for options in filter(None, map(guard_marks.options_of, vars(base).get("decorators") or ())):
            usual = usual_methods_of(cls)
            if method not in (options.locked_methods(usual) or usual):
                continue
            if options not in applied:
                theirs = base.__qualname__
                raise ConfigurationError(
                    f"{name} has decorators of its own instead of those of {theirs}, and requests go past "
                    f"the lock of that: write decorators = [*{theirs}.decorators, …], or @{options} above "
                    f"{cls.__name__}."
                )
            if sees_as_view:
                raise ConfigurationError(
                    f"The decorators of {name} were changed after its as_view(), so that requests go past "
                    f"@{options}: write them in the class."
                )


def _refuse_generator(view: Callable[..., Any], method: str) -> None:
    cls = class_of(view)
    if cls is not None and issubclass(cls, MethodView):
        guard_marks.refuse_unguardable(handler_of(cls, method))


def _hidden_in(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions that a decorator without `functools.wraps` has replaced by *function*."""
    # A closure that takes certain arguments is no decorator, and may contain views that it only calls.
    if hasattr(function, "__wrapped__") or not guard_marks.passes_on(function):
        return
    for inner in guard_marks.enclosed(function):
        yield from chain(inner)


def _exposed(view: Callable[..., Any]) -> Iterator[Guarded]:
    """Yield the guards of *view* that get the route's arguments unchanged: only guards are above them."""
    inner = yield from _outermost(view)
    cls = class_of(view)
    if cls is None or not private.is_made_by_as_view(inner):
        return
    inner = yield from _outermost(cls.dispatch_request)
    if inner is MethodView.dispatch_request:
        for name in private.METHOD_NAMES & set(dir(cls)):
            yield from _outermost(getattr(cls, name))


def _outermost(function: Callable[..., Any]) -> Generator[Guarded, None, Callable[..., Any]]:
    """Yield the guards on *function* that have only guards above. Return the function below them."""
    while (guards := guards_of(function)) and guards[0].wrapper is function:
        yield guards[0]
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function


def route_methods(route: Route) -> list[str]:
    """Return the HTTP methods with which *route* runs its view."""
    methods = set(route.methods or ())
    if private.answers_options(route):
        methods.discard("OPTIONS")
    return sorted(methods)


def _never(guarded: Guarded, methods: Methods | None, route: Route) -> str:
    options, leads = in_words(methods or EVERY_METHOD), ", ".join(route_methods(route))
    return (
        f"{guarded.where} locks {options}, but the route {route.rule!r} leads to it with {leads} only: it "
        "would never lock. Say which methods: methods=[…]."
    )


def check_arguments(guarded: Guarded, route: Route) -> None:
    """Raise `ConfigurationError` if the arguments of *route* can't fill in the names of *guarded*.

    An argument is missing, or is text without a converter, so that one value could have several locks.
    """
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
    """Yield a warning for each route whose guards name methods, if other methods reach its code unlocked.

    GET is left out, because by convention it only reads.
    """
    for route in app.url_map.iter_rules():
        if (view := views.get(route.endpoint)) is None:
            continue
        cls = class_of(view)
        around = [*guards_of(view), *(guards_of(cls.dispatch_request) if cls is not None else ())]
        guards = [guarded for guarded in around if guarded.options.mode != READ]
        named = [guarded for guarded in guards if isinstance(guarded.options.methods, frozenset)]
        # A guard that names no methods locks all methods that may write.
        if named and len(named) == len(guards):
            yield from _of_route(route, cls, named)


def _of_route(route: Route, cls: type[View] | None, named: list[Guarded]) -> Iterator[str]:
    locked: set[str] = set()
    for guarded in named:
        locked |= guarded.options.methods or set()  # type: ignore[arg-type]
    others = sorted(set(route_methods(route)) - locked - {"GET"})
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
    theirs = {handler_name(cls, method) for method in locked.intersection(route_methods(route))}
    for method in others:
        name = handler_name(cls, method)
        if method not in usual_methods_of(cls):
            continue
        same = [one for one in theirs if getattr(cls, one, None) is getattr(cls, name, None)]
        for one in sorted(guard_marks.reached(cls, name) & theirs)[:1] or same[:1]:
            yield (
                f"{where} answers {method} by {one}(), too, which runs without the lock then: a client "
                "chooses the method. Leave methods out, to lock all but GET."
            )
