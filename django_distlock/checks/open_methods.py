"""HTTP methods that a client may send to a view, and that its guard, which names others, does not lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from distlock.modes import READ
from distlock.web.decorator import Guarded, chain, guards_of
from distlock.web.self_calls import reached
from django_distlock.guarding.overriding import calls_super
from django_distlock.guarding.usual_methods import overriding, usual_methods_of
from django_distlock.guarding.viewclasses import methods_of, on_method, view_class
from django_distlock.private import required_methods
from django_distlock.private_of_others import is_api_view

#: The methods with which generic views of Django and REST framework write.
_WRITING = ("create", "update", "destroy", "form_valid")


def open_methods(view: Any) -> Iterator[str]:
    """Yield what is wrong where guards around *view* name methods, and other ones reach the same code.

    GET is left out: it only reads by convention.
    """
    cls = view_class(view)
    guards = guards_of(view)
    if cls is not None:
        guards += (on_method(guarded, cls, "dispatch") for guarded in guards_of(cls.dispatch))
    guards = [guarded for guarded in guards if guarded.told.mode != READ]
    named = [guarded for guarded in guards if guarded.told.methods is not None]
    locked: set[str] = set()
    for guarded in guards:
        if not isinstance(guarded.methods, frozenset):
            return  # It locks all that may change something.
        locked |= guarded.methods
    if not named:
        return
    if cls is None or is_api_view(cls):
        yield from _of_function(view, cls, named[0], locked)
    elif any(not _calls_the_frameworks(cls, base) for base in overriding(cls, ["dispatch"])):
        yield from _of_function(view, None, named[0], locked)
    else:
        yield from _of_class(view, cls, named[0], locked)


def _of_function(view: Any, cls: Any, guarded: Guarded, locked: set[str]) -> Iterator[str]:
    taken = _taken(view, cls)
    others = None if taken is None else taken - locked - {"GET"}
    if others is not None and not others:
        return
    shown = "any other method" if others is None else ", ".join(sorted(others))
    # GET stays what it is: locked where it is named.
    required = json.dumps(sorted((locked - {"HEAD"} if "GET" not in locked else locked) | {"GET"}))
    out = 'name every method, methods=["*"]' if "GET" in locked else "leave methods out"
    yield (
        f"{guarded.where} is locked for {', '.join(sorted(locked))}, and takes {shown} without the lock: a "
        f"client may send what it likes. Write @require_http_methods({required}) above the guard, or {out}."
    )


def _of_class(view: Any, cls: Any, guarded: Guarded, locked: set[str]) -> Iterator[str]:
    usual = usual_methods_of(view, cls)
    names = _handlers(view, cls)
    theirs = [names[method] for method in sorted(locked & names.keys())]
    writes = [*theirs, *(one for one in _WRITING if any(one in reached(cls, name) for name in theirs))]
    for method in sorted(names.keys() - locked):
        if method not in usual:
            continue
        ours = reached(cls, names[method])
        common = [one for one in writes if one in ours] or _alias(cls, names, method, locked)
        if common:
            yield (
                f"{names[method]}() of {cls.__module__}.{cls.__qualname__} answers {method} by "
                f"{common[0]}(), which {guarded.where} locks for {', '.join(sorted(locked))} only: {method} "
                f"runs it without the lock. Leave methods out, to lock every handler but get."
            )


def _alias(cls: Any, names: Mapping[str, str], method: str, locked: Iterable[str]) -> list[str]:
    """Return the locked handler that is the very function which answers *method*."""
    function = getattr(cls, names[method])
    return [names[one] for one in locked if one in names and getattr(cls, names[one]) is function]


def _handlers(view: Any, cls: Any) -> dict[str, str]:
    """Return the names of the methods of *cls* that answer requests to *view*, by HTTP method."""
    actions: Mapping[str, str] = getattr(view, "actions", None) or {}
    handled = {method: method.lower() for method in methods_of(view) or ()}
    return handled | {method.upper(): action for method, action in actions.items()}


def _taken(view: Any, cls: Any) -> frozenset[str] | None:
    """Return the methods with which requests come to the code of *view*; None for any."""
    taken: frozenset[str] | None = None
    if cls is not None:
        usual = usual_methods_of(view, cls)
        taken = frozenset(method for method in methods_of(view) or () if method in usual)
    for one in chain(view):
        required = required_methods(one)
        if required is not None:
            taken = required if taken is None else taken & required
    return taken


def _calls_the_frameworks(cls: Any, base: type) -> bool:
    """Tell whether ``dispatch()`` of *base*, one of the MRO of *cls*, comes to that of the framework."""
    later = cls.__mro__[cls.__mro__.index(base) + 1 :]
    return calls_super(vars(base)["dispatch"], "dispatch", later)
