"""Which HTTP methods a guard on a class-based view locks, unless it names methods.

Every handler is locked, except those that only read by convention: `get`, a `head` that is `get`, and the
``options()`` of the framework. A method without a handler gets the framework's 405 without a lock, so that a
client can't hold the lock with a method that it made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from django.views import View

from distlock.web.decorator import chain
from distlock.web.methods import ALL_BUT_GET, Methods
from django_distlock.private import decorators_of
from django_distlock.private_of_others import is_api_view

#: The packages whose code does nothing but what their documentation says.
_FRAMEWORKS = (
    "django",
    "rest_framework",
    "distlock",
    "django_distlock",
    "asgiref",
    "functools",
    "contextlib",
)

#: The methods that may answer requests before a handler is looked up.
_DECIDING = ("dispatch", "http_method_not_allowed")

#: The methods that may give a view handlers which its class does not show.
_ADDING = ("setup", "__init__", "__getattr__", "__getattribute__")


def usual_methods_of(callback: Any, cls: Any) -> Methods:
    """Return what a guard around *callback*, which ``as_view()`` of *cls* has made, locks."""
    initkwargs = getattr(callback, "view_initkwargs", None) or getattr(callback, "initkwargs", None) or {}
    names = initkwargs.get("http_method_names", cls.http_method_names)
    handlers = {name: _function(getattr(cls, name)) for name in names if hasattr(cls, name)}
    for method, action in (getattr(callback, "actions", None) or {}).items():
        handlers[method] = _function(getattr(cls, action, None))
    return _usual(cls, handlers, shown=all(map(is_of_framework, chain(callback))))


def locks_usually(view: View, method: str) -> bool:
    """Tell whether a guard on ``dispatch()`` of *view* locks requests with *method*."""
    name = method.lower()
    if method not in {"GET", "HEAD", "OPTIONS"} and name in view.http_method_names and hasattr(view, name):
        return True
    return method in usual_methods_in(view)


def usual_methods_in(view: View) -> Methods:
    """Return what a guard on ``dispatch()`` of *view* locks."""
    names = view.http_method_names
    return _usual(type(view), {name: _function(getattr(view, name)) for name in names if hasattr(view, name)})


def overriding(cls: type, names: Iterable[str]) -> list[type]:
    """Return the classes of the MRO of *cls*, outside the frameworks, that define one of *names*."""
    bases = cls.__mro__[:-1]
    return [
        base
        for number, base in enumerate(bases)
        if any(name in vars(base) and not _is_of_framework_at(bases[number:], name) for name in names)
    ]


def _is_of_framework_at(bases: Sequence[type], name: str) -> bool:
    """Tell whether the first of *bases* adds no code of the site to what the later ones have as *name*."""
    inherited = [vars(base).get(name) for base in bases[1:]]
    member = vars(bases[0])[name]
    return callable(member) and all(
        map(is_of_framework, takewhile(lambda one: one not in inherited, chain(member)))
    )


def is_of_framework_in(member: object) -> bool:
    """Tell whether all that a call of *member*, of a class, runs is code of the frameworks, or ours."""
    return callable(member) and all(map(is_of_framework, chain(member)))


def is_of_framework(function: Any) -> bool:
    """Tell whether *function* itself, apart from what it wraps, is code of the frameworks, or ours."""
    # functools.wraps() copies __module__, but not the globals.
    code = getattr(function, "__globals__", None)
    module = type(function).__module__ if code is None else code.get("__name__", "")
    if not is_framework(module):
        return False
    return all(map(is_of_framework, decorators_of(function)))


def is_framework(module: str) -> bool:
    """Tell whether *module* is of Django, REST framework or this library."""
    return module.partition(".")[0] in _FRAMEWORKS


def _usual(cls: Any, handlers: Mapping[str, object], *, shown: bool = True) -> Methods:
    """*handlers*: what answers, by method. *shown*: no code of the site stands around the view."""
    if not shown or overriding(cls, (*_DECIDING, *_ADDING)):
        return ALL_BUT_GET
    exempt = {"GET"}
    # The function under @api_view may tell HEAD from GET.
    if handlers.get("head") in (None, handlers.get("get")) and not is_api_view(cls):
        exempt.add("HEAD")
    if is_of_framework_in(handlers.get("options")):
        exempt.add("OPTIONS")
    return frozenset(name.upper() for name in handlers) - exempt


def _function(handler: object) -> object:
    """Return the function of a bound method."""
    return getattr(handler, "__func__", handler)
