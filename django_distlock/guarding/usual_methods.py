"""Which HTTP methods a guard on a class-based view locks, unless it names methods.

Every handler is locked, except those that only read by convention: `get`, a `head` that is `get`, and the
``options()`` of the framework. A method without a handler gets the framework's 405 without a lock, so that a
client can't hold the lock with a method that it made up.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from types import CodeType
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.views import View

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, chain, enclosed, guards_of
from distlock.web.guard_options import ALL_BUT_GET, Methods
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


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")


class PassedBy(NamedTuple):
    """A guard that a class inherits, and whose requests don't come to it."""

    #: The class whose method does not call the next one.
    hiding: type
    #: The class that has the guard on its method of that name.
    base: type
    guarded: Guarded


def passed_by(cls: type, name: str) -> Iterator[PassedBy]:
    """Yield the guards on the method *name* of bases of *cls* that an override does not call."""
    mro = cls.__mro__
    above: list[int] = []
    for number, base in enumerate(mro):
        if name not in vars(base):
            continue
        if guards := guards_of(vars(base)[name]):
            for one in above:
                if not calls_super(vars(mro[one])[name], name, mro[one + 1 : number + 1]):
                    yield from (PassedBy(mro[one], base, guarded) for guarded in guards)
                    return
            # A guard further up is overridden by this one, on purpose.
            return
        above.append(number)


def calls_super(function: Any, name: str, bases: Sequence[type]) -> bool:
    """Return whether *function* seems to call the method *name* of one of *bases*, which are in their order.

    ``super().render()`` is no call of ``post``, and ``super(Last, self)`` goes past the last one.
    """
    codes = list(_codes(function, set()))
    # Code that was compiled in another way can't be read.
    if not any(code.co_code for code in codes):
        return True
    known = {word for code in codes for word in code.co_names}
    return any(_calls(code, name, bases, name in known) for code in codes)


def _codes(function: Callable[..., Any], seen: set[int]) -> Iterator[CodeType]:
    """The code of *function*, of what it wraps, also without `functools.wraps`, and of what is in them."""
    for one in chain(function):
        code = getattr(one, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        yield from _within(code)
        for inner in enclosed(one):
            yield from _codes(inner, seen)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


def _calls(code: CodeType, name: str, bases: Sequence[type], later: bool) -> bool:
    names = [base.__name__ for base in bases]
    # A class may have the name of its base.
    last = names[-1] if f".{names[-1]}." not in f".{code.co_qualname}" else None
    #: Whether the next attribute is one of a base, and whether ``super`` stands before it.
    of_base = of_super = False
    for step in dis.get_instructions(code):
        word = step.argval
        if step.opname.startswith(_ATTRIBUTE):
            if of_base and word == name:
                return True
            of_base = word in names and not (of_super and word == last)
            of_super = of_super and of_base
        elif step.opname.startswith("STORE_"):
            if of_base and later:
                # parent = super(), and then parent.post().
                return True
            of_base = of_super = False
        elif step.opname == "LOAD_CONST":
            if of_super and word == name:
                # getattr(super(), "post")
                return True
        elif step.opname.startswith("LOAD_") and isinstance(word, str):
            if word == "super":
                of_base = of_super = True
            elif word in names:
                of_base = not (of_super and word == last)
            elif not of_super:
                of_base = False
    return False


#: Where a request keeps the guards that do not lock it, each with what tells whether it locks a method.
_EXEMPT = "_distlock_exempt"

#: Tells whether a guard locks a method.
Locks = Callable[[str], bool]


@contextmanager
def unlocked(request: object, guarded: Guarded, locks: Locks) -> Iterator[None]:
    """Inside, *request* refuses a method for which *locks* is true, with a `ConfigurationError`."""
    if not isinstance(request, HttpRequest) or "method" not in vars(request):
        yield
        return
    cls, exempt = type(request), vars(request).setdefault(_EXEMPT, [])
    if not exempt:
        request.__class__ = _watched(cls)  # type: ignore[arg-type]
    exempt.append((guarded, locks))
    try:
        yield
    finally:
        exempt.pop()
        request.__class__ = cls


@functools.cache
def _watched(cls: type[HttpRequest]) -> type[HttpRequest]:
    """Return *cls* whose instances look at each change of their method."""

    def get(request: HttpRequest) -> Any:
        return vars(request)["method"]

    def change(request: HttpRequest, method: Any) -> None:
        for guarded, locks in vars(request).get(_EXEMPT, ()):
            if isinstance(method, str) and locks(method):
                raise ConfigurationError(
                    f"{guarded.where} was not locked, because the request came as {request.method}, and code "
                    f"below the lock makes it a {method}, which is locked. Change the method above the lock, "
                    'in a middleware, or lock every method with methods=["*"].'
                )
        vars(request)["method"] = method

    attributes = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "method": property(get, change),
    }
    watched: type[HttpRequest] = type(cls.__name__, (cls,), attributes)
    return watched
