"""Guards that something around them hides from Django, or puts into a transaction: found before a request."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction

from distlock.web.decorator import Guarded, around, chain, enclosed, guards_of, unused
from django_distlock.guarding.advice import above_the_class, as_rule
from django_distlock.guarding.viewclasses import view_class
from django_distlock.rules.routes import Route


def hidden(route: Route) -> Iterator[str]:
    """Guards at *route* inside a transaction that is open before their lock, with the line to write."""
    view = route.pattern.callback
    cls = view_class(view)
    outermost = guards_of(view)[:1]
    for guarded in outermost:
        if _opens_transaction(view, guarded):
            yield _below_atomic(guarded)
        else:
            yield from _behind_wrapper(route, guarded, cls)
    if cls is None and not outermost:
        for guarded in _handed_to(view):
            yield from _behind_wrapper(route, guarded, cls)
    if cls is not None:
        yield from _on_dispatch(cls)
        if not outermost:
            yield from _on_methods(cls, view)
    for operation in _operations(view):
        yield from _of_operation(route, operation)


def _opens_transaction(function: Callable[..., Any], guarded: Guarded) -> bool:
    """Whether ``transaction.atomic`` stands above *guarded* on *function*."""
    return any(_is_atomic(one) for one in around(function, guarded))


def _decorated_atomic(function: Callable[..., Any]) -> bool:
    return any(_is_atomic(one) for one in chain(function))


def _is_atomic(wrapper: Any) -> bool:
    code = getattr(wrapper, "__code__", None)
    written = getattr(code, "co_qualname", "")
    if written == "ContextDecorator.__call__.<locals>.inner":
        return isinstance(inspect.getclosurevars(wrapper).nonlocals.get("self"), transaction.Atomic)
    if written != "_multi_decorate.<locals>._wrapper":
        return False
    # `method_decorator`, with the innermost first. Above a guard among them it is too early.
    for decorator in reversed(inspect.getclosurevars(wrapper).nonlocals.get("decorators", ())):
        if unused(decorator) is not None:
            return False
        if decorator is transaction.atomic or isinstance(decorator, transaction.Atomic):
            return True
    return False


def _below_atomic(guarded: Guarded) -> str:
    return (
        f"@transaction.atomic stands above @{guarded.told} on {guarded.where}: the transaction would be open "
        "before the lock, and be committed after its release. Write @distributed_lock above "
        "@transaction.atomic."
    )


def _behind_wrapper(route: Route, guarded: Guarded, cls: Any) -> Iterator[str]:
    """Of what stands around *guarded* and does not hand on its mark, so that Django opens a transaction."""
    view = route.pattern.callback
    opened = _atomic_requests(view)
    if opened and cls is None and not iscoroutinefunction(view):
        rule = as_rule(guarded.told, route.name)
        yield (
            f"{_shown(view)} hides the guard of {guarded.where} from Django, so that ATOMIC_REQUESTS opens "
            f"the transaction of the database {opened[0]!r} before the lock. {rule}"
        )


def _handed_to(view: Any) -> Iterator[Guarded]:
    """The guards of what *view* was given to call by itself, without saying that it wraps it.

    A decorator without `functools.wraps` has it in its closure, an object among its attributes.
    """
    ahead, seen = [view], set[int]()
    while ahead:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if found := guards_of(one):
            yield found[0]
            continue
        for passed in chain(one):
            ahead += enclosed(passed)
            if not inspect.isroutine(passed):
                ahead += filter(inspect.isfunction, getattr(passed, "__dict__", {}).values())


def _on_dispatch(cls: Any) -> Iterator[str]:
    # What as_view() gives has its marks, and is not decorated itself.
    for guarded in guards_of(cls.dispatch)[:1]:
        if _opens_transaction(cls.dispatch, guarded):
            yield _below_atomic(guarded)


def _on_methods(cls: Any, view: Any) -> Iterator[str]:
    answering = getattr(view, "actions", None) or {name: name for name in cls.http_method_names}
    for method, name in answering.items():
        # What a subclass has instead may call it.
        passed = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
        for index, function in enumerate(passed):
            for guarded in guards_of(function)[:1]:
                if _opens_transaction(function, guarded):
                    yield _below_atomic(guarded)
                elif any(map(_decorated_atomic, [cls.dispatch, *passed[:index]])):
                    line = above_the_class(guarded.told, cls, method.upper(), None)
                    yield (
                        f"@transaction.atomic in {cls.__module__}.{cls.__qualname__} opens a transaction "
                        f"before the lock of {guarded.where}. {line}"
                    )


def _operations(view: Any) -> list[Any]:
    """What django-ninja calls for the requests to *view*."""
    if "ninja" not in sys.modules or not inspect.isfunction(view):
        return []
    owner = inspect.getclosurevars(view).nonlocals.get("self")
    return list(getattr(owner, "operations", ()))


def _of_operation(route: Route, operation: Any) -> Iterator[str]:
    for function in (operation.run, operation.view_func):
        for guarded in guards_of(function)[:1]:
            if _opens_transaction(function, guarded):
                yield _below_atomic(guarded)
            elif not iscoroutinefunction(function) and (opened := _atomic_requests(route.pattern.callback)):
                yield (
                    f"{guarded.where} is called by django-ninja inside the transaction that ATOMIC_REQUESTS "
                    f"opens on the database {opened[0]!r}, and lets its lock go before COMMIT. "
                    f"{as_rule(guarded.told, route.name, operation.methods)}"
                )
            elif guarded.told.methods is not None:
                yield (
                    f"{guarded.where} is called by django-ninja, and not as a view, so methods= would never "
                    "lock: leave it out."
                )


def _atomic_requests(view: Any) -> list[str]:
    """The databases on which Django opens a transaction around *view*."""
    out: set[str] = getattr(view, "_non_atomic_requests", set())
    return [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in out
    ]


def _shown(view: Any) -> str:
    if inspect.isfunction(view):
        return f"{view.__module__}.{view.__qualname__}, a decorator without functools.wraps,"
    kind = type(view)
    return f"{kind.__module__}.{kind.__qualname__} in the URLconf"
