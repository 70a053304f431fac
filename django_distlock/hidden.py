"""Guards that something around them hides from Django, or puts into a transaction: found before a request."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction

from distlock.web.decorator import Guarded, Told, around, chain, guards_of, unused
from distlock.web.settings import DEFAULT_ALIAS
from django_distlock.conf import MIDDLEWARE
from django_distlock.remedies import above_the_class
from django_distlock.routes import Route
from django_distlock.viewclasses import view_class


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
        yield (
            f"{_shown(view)} hides the guard of {guarded.where} from Django, so that ATOMIC_REQUESTS opens "
            f"the transaction of the database {opened[0]!r} before the lock. {_as_rule(guarded.told, route)}"
        )


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
                    f"{_as_rule(guarded.told, route, operation.methods)}"
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
    kind = type(view)
    return f"{kind.__module__}.{kind.__qualname__} in the URLconf"


def _as_rule(told: Told, route: Route, methods: list[str] | None = None) -> str:
    """The line that locks *route* as *told*, around everything."""
    names = [source.text for source in told.names.templates]
    written: dict[str, object] = {"route": route.name or "…"}
    if methods or told.methods:
        written["methods"] = sorted(told.methods or methods or ())
    if told.alias != DEFAULT_ALIAS:
        written["alias"] = told.alias
    written |= {
        word: value for word in ("timeout", "ttl", "fence") if (value := getattr(told, word)) is not None
    }
    line = json.dumps(written, ensure_ascii=False).replace("true", "True").replace("false", "False")
    lock = json.dumps(names[0] if len(names) == 1 else names) if names else "…"
    name = "" if route.name else " Give the route a name, and write that in it."
    return (
        f'Write DISTLOCK_RULES = [{line[:-1]}, "lock": {lock}}}] instead of the decorator, with '
        f"{MIDDLEWARE!r} in MIDDLEWARE.{name}"
    )
