"""Inspects class-based views: their kind, their handlers, the HTTP methods that they answer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.views import View

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.decorator import Guarded, Told, When, guards_of
from distlock.web.guard_options import Methods, written
from django_distlock.guarding.usual_methods import calls_super, usual_methods_of
from django_distlock.private import is_dummy, opt_out, opted_out
from django_distlock.private_of_others import function_of_api_view, is_api_view, is_rest

#: Methods of a view that return before its handler runs.
TOO_EARLY = ("setup", "initial", "initialize_request", "check_permissions", "check_throttles")


def view_class(callback: Any) -> Any:
    """Return the view class behind *callback*, or None if ``as_view()`` did not make it.

    REST framework's view sets have only the attribute ``cls``.
    """
    cls = getattr(callback, "view_class", None) or getattr(callback, "cls", None)
    return cls if is_view_class(cls) else None


def is_view_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, View)


def never_awaited(cls: Any, names: Iterable[str]) -> bool:
    """Return whether REST framework's dispatch() of *cls* calls async methods of *names* without await."""
    own = is_rest(cls) and inspect.unwrap(cls.dispatch).__module__.startswith("rest_framework.")
    return own and any(iscoroutinefunction(getattr(cls, name, None)) for name in names)


def guarded_callback(
    callback: Callable[..., Any],
    told: Told,
    *,
    methods: Methods | None,
    when: When | None,
) -> Guarded:
    """Return the guard of *callback*. Raises `ConfigurationError` if it would never lock.

    *methods*: what to lock if *told* names no methods. None: all; any other value: the class's usual ones.
    """
    cls = view_class(callback)
    usual = None if methods is None else usual_methods_of(callback, cls)

    def view(request: Any, *args: Any, **kwargs: Any) -> Any:
        # Names are bound by this function's signature. *callback* shows that of dispatch(), which it wraps.
        return callback(request, *args, **kwargs)

    # *callback* may be guarded itself, and then its guard opens the transactions.
    opt_out(view, opted_out(callback))
    guarded = Guarded(view, told, methods=usual, when=when)
    guarded.where = f"{cls.__module__}.{cls.__name__ if is_api_view(cls) else cls.__qualname__}"
    refuse_useless(guarded, cls, methods_of(callback))
    return guarded


def guards_below_api_view(view: Callable[..., Any]) -> list[Guarded]:
    """Return the guards that stand below ``@api_view`` on *view*, which hides them."""
    cls = view_class(view)
    if cls is None or not is_api_view(cls):
        return []
    return guards_of(function_of_api_view(cls))


def refuse_own_dispatch(guarded: Guarded, cls: Any) -> None:
    """Raise `ConfigurationError` if dispatch() of *cls*, a REST view, never reaches the guarded handler."""
    having: list[type] = [base for base in cls.__mro__ if "dispatch" in vars(base)]
    for number, above in enumerate(having):
        dispatch = vars(above)["dispatch"]
        if inspect.unwrap(dispatch).__module__.startswith("rest_framework."):
            return
        theirs = next(base for base in having if base.__module__.startswith("rest_framework."))
        if not calls_super(dispatch, "dispatch", having[number + 1 : having.index(theirs) + 1]):
            raise ConfigurationError(
                f"{above.__module__}.{above.__qualname__} has a dispatch() that does not call that of REST "
                f"framework, after whose permissions {guarded.where} would be locked: requests would pass "
                "the lock by. Call super().dispatch() in it, or write 'with locks.lock(…):' in it instead of "
                f"@{guarded.told}."
            )


def methods_of(view: Callable[..., Any]) -> set[str] | None:
    """Return the HTTP methods that *view* answers; None if they are unknown."""
    cls = view_class(view)
    if cls is None:
        return None
    initkwargs = getattr(view, "view_initkwargs", None) or getattr(view, "initkwargs", None) or {}
    known = initkwargs.get("http_method_names", cls.http_method_names)
    # REST framework's view sets: {"post": "reduce_stock"}.
    handled = getattr(view, "actions", None) or [name for name in known if hasattr(cls, name)]
    return _if_known({name.upper() for name in handled if name in known})


def methods_of_view(view: View) -> set[str] | None:
    """Return the HTTP methods that the class of *view* answers; None if unknown, as of a view set."""
    if hasattr(view, "action_map"):
        return None
    return _if_known({name.upper() for name in view.http_method_names if hasattr(view, name)})


def handlers(view: View) -> dict[str, set[str]]:
    """Return the methods of *view* that answer requests: name -> HTTP methods."""
    found = {name: {name.upper()} for name in view.http_method_names if hasattr(view, name)}
    for method, action in getattr(view, "action_map", {}).items():
        found.setdefault(action, set()).add(method.upper())
    if "get" in found:
        found["get"].add("HEAD")
    return found


def answering(view: Any, cls: Any) -> dict[str, set[str]]:
    """Return the methods of *cls* that may answer requests to *view*: name -> HTTP methods."""
    actions: dict[str, str] = getattr(view, "actions", None) or {
        method.lower(): method.lower() for method in methods_of(view) or ()
    }
    found: dict[str, set[str]] = {}
    for method, name in actions.items():
        if hasattr(cls, name):
            found.setdefault(name, set()).add(method.upper())
    return found


def on_method(guarded: Guarded, cls: Any, name: str) -> Guarded:
    """Return the guard that *guarded* will be once `method_decorator` puts it on the method, not a dummy."""
    if not is_dummy(guarded.function):
        return guarded
    on_class = Guarded(getattr(cls, name), guarded.told)
    on_class.where = f"{cls.__module__}.{cls.__qualname__}.{name}"
    return on_class


def guards_on(cls: Any, name: str) -> Iterator[tuple[type, Guarded]]:
    """Yield the guards on the method *name* of *cls* and of its bases, with the class that has it."""
    for base in cls.__mro__:
        if (function := vars(base).get(name)) is not None:
            for guarded in guards_of(function):
                yield base, on_method(guarded, base, name)


def refuse_useless(
    guarded: Guarded, cls: type, taken: Collection[str] | None, usual: Methods | None = None
) -> None:
    """Raise `ConfigurationError` if *guarded* locks none of the methods *taken*, which *cls* answers.

    *usual*: the methods that it locks if it names none.
    """
    methods = usual if guarded.methods is None else guarded.methods
    if taken is None or methods is None:
        return
    # HEAD runs what GET runs.
    if not methods.isdisjoint(frozenset(taken) | ({"HEAD"} if "GET" in taken else frozenset())):
        return
    known = sorted(set(taken) - {"HEAD", "OPTIONS"})
    name = f"{cls.__module__}.{cls.__qualname__}"
    locked = written(methods)
    if guarded.told.methods is None and guarded.told.mode != READ:
        locked = "all that is not read with GET"
    problem = f"{name} is locked for {locked}, but answers only {', '.join(known)}"
    if known == ["GET"] or guarded.told.mode == READ:
        line = f"@{with_methods(guarded.told, *known)}"
    else:
        line = f"@{without_methods(guarded.told)}"
    raise ConfigurationError(f"{problem}: it would never be locked. Write {line}, or leave it out.")


def refuse_useless_method(guarded: Guarded, answers: set[str]) -> None:
    """Raise `ConfigurationError` if *guarded* locks none of the HTTP methods that its method *answers*."""
    methods = guarded.told.locked_methods(None)
    if methods is not None and methods.isdisjoint(frozenset(answers)):
        if guarded.told.methods is None:
            only = ", ".join(sorted(answers))
            raise ConfigurationError(
                f'{guarded.where} answers {only}, and mode="shared" locks GET and HEAD unless it is told '
                f"otherwise: write @{with_methods(guarded.told, *answers)}."
            )
        raise ConfigurationError(
            f"{guarded.where} answers {', '.join(sorted(answers))}: with methods= for other ones it would "
            "never lock. Leave that out."
        )


def with_methods(told: Told, *methods: str) -> str:
    """Return the guard *told* as the user would write it, with ``methods=`` for these HTTP methods."""
    named = ", ".join(f'"{method}"' for method in sorted(set(methods) - {"HEAD"}) or methods)
    return f"{without_methods(told)[:-1]}, methods=[{named}])"


def without_methods(told: Told) -> str:
    """Return the guard *told* as the user would write it, without ``methods=``."""
    return re.sub(r", methods=\[.*?\]", "", str(told))


def _if_known(methods: set[str]) -> set[str] | None:
    # A class that answers in its own `dispatch` may have no handlers.
    return methods if methods - {"OPTIONS", "HEAD"} else None
