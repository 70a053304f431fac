"""Guards whose lock would be taken inside a transaction, as far as that is seen before a request.

A request is refused in any case. What does not say what it wraps hides a guard from here: decorators without
`functools.wraps`, objects that have the view as an attribute, operations of django-ninja.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import chain as joined
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import transaction

from distlock.web.decorator import Guarded, around, chain, guards_of, unused
from django_distlock.guarding.advice import above_the_class, as_rule
from django_distlock.guarding.transactions import opened_around
from django_distlock.guarding.viewclasses import answering, guards_on, view_class
from django_distlock.private import decorators_of
from django_distlock.rules.routes import Route


def below_atomic(route: Route) -> Iterator[str]:
    """Guards at *route* inside of ``@transaction.atomic``."""
    view = route.pattern.callback
    cls = view_class(view)
    # The result of as_view() has the marks of dispatch(), and is not decorated itself.
    functions = [view] if cls is None else [view, cls.dispatch]
    outermost = {guarded: function for function in functions for guarded in guards_of(function)[:1]}
    for guarded, function in outermost.items():
        if _opens_transaction(around(function, guarded)):
            yield _below(guarded)
    if cls is None or outermost:
        return
    for name, methods in answering(view, cls).items():
        # A subclass's own method may call it.
        passed = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
        for index, function in enumerate(passed):
            for guarded in guards_of(function)[:1]:
                if _opens_transaction(around(function, guarded)):
                    yield _below(guarded)
                elif any(_opens_transaction(chain(above)) for above in (cls.dispatch, *passed[:index])):
                    line = above_the_class(guarded.told, cls, min(methods), None)
                    yield (
                        f"@transaction.atomic in {cls.__module__}.{cls.__qualname__} opens a transaction "
                        f"before the lock of {guarded.where}. {line}"
                    )


def _below(guarded: Guarded) -> str:
    return (
        f"@transaction.atomic stands above @{guarded.told} on {guarded.where}: the transaction would be open "
        "before the lock, and be committed after its release. Write @distributed_lock above "
        "@transaction.atomic."
    )


def _opens_transaction(wrappers: Iterable[object]) -> bool:
    """Whether ``transaction.atomic`` is among *wrappers*, the outermost first, before a guard."""
    for decorator in joined.from_iterable(map(decorators_of, wrappers)):
        if unused(decorator) is not None:
            # `method_decorator` applies a guard, too: what is below that is in time.
            return False
        if decorator is transaction.atomic or isinstance(decorator, transaction.Atomic):
            return True
    return False


def hidden_from_django(route: Route) -> Iterator[str]:
    """Guards of functions behind what does not hand on their marks, so that Django opens a transaction."""
    view = route.pattern.callback
    opened = opened_around(view)
    if not opened or view_class(view) is not None or iscoroutinefunction(view):
        return
    for guarded in guards_of(view)[:1]:
        rule = as_rule(guarded.told, route.name)
        yield (
            f"{_shown(view)} hides the guard of {guarded.where} from Django, so that ATOMIC_REQUESTS opens "
            f"the transaction of the database {opened[0]!r} before the lock. {rule}"
        )


def on_methods(route: Route) -> Iterator[str]:
    """Guards on methods that are called inside the transaction that Django opens around the view."""
    view = route.pattern.callback
    cls = view_class(view)
    if cls is None or not (opened := opened_around(view)):
        return
    for name, methods in {"dispatch": set[str](), **answering(view, cls)}.items():
        for _, guarded in guards_on(cls, name):
            on_action = hasattr(view, "actions") and name != "dispatch"
            line = above_the_class(
                guarded.told, cls, min(methods, default=""), route.name if on_action else None
            )
            yield (
                f"{guarded.where} is called inside the transaction that ATOMIC_REQUESTS opens on the "
                f"database {opened[0]!r}, and lets its lock go before COMMIT. {line}"
            )


def _shown(view: Any) -> str:
    if inspect.isfunction(view):
        return f"{view.__module__}.{view.__qualname__}, a decorator without functools.wraps,"
    kind = type(view)
    return f"{kind.__module__}.{kind.__qualname__} in the URLconf"
