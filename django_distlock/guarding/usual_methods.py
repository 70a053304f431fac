"""Finds the HTTP methods that a guard on a class-based view locks unless it names methods.

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

#: The packages whose code is not the site's: their ``get()`` and ``options()`` only read.
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

#: The methods that may add handlers to a view which its class does not have.
_ADDING = ("setup", "__init__", "__getattr__", "__getattribute__")


def usual_methods_of(callback: Any, cls: Any) -> Methods:
    """Return the methods that a guard locks around *callback*, which ``as_view()`` of *cls* has made."""
    initkwargs = getattr(callback, "view_initkwargs", None) or getattr(callback, "initkwargs", None) or {}
    names = initkwargs.get("http_method_names", cls.http_method_names)
    handlers = {name: _function(getattr(cls, name)) for name in names if hasattr(cls, name)}
    for method, action in (getattr(callback, "actions", None) or {}).items():
        handlers[method] = _function(getattr(cls, action, None))
    return _usual(cls, handlers, shown=all(map(is_of_framework, chain(callback))))


def locks_usually(view: View, method: str) -> bool:
    """Return whether a guard on ``dispatch()`` of *view* locks requests with *method*."""
    name = method.lower()
    if method not in {"GET", "HEAD", "OPTIONS"} and name in view.http_method_names and hasattr(view, name):
        return True
    return method in usual_methods_in(view)


def usual_methods_in(view: View) -> Methods:
    """Return the methods that a guard on ``dispatch()`` of *view* locks."""
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
    """Return whether the method *name* of the first of *bases* adds no code of the site to the inherited."""
    inherited = [vars(base).get(name) for base in bases[1:]]
    member = vars(bases[0])[name]
    return callable(member) and all(
        map(is_of_framework, takewhile(lambda one: one not in inherited, chain(member)))
    )


def is_of_framework_in(member: object) -> bool:
    """Return whether *member*, of a class, and all that it wraps is code of the frameworks, or ours."""
    return callable(member) and all(map(is_of_framework, chain(member)))


def is_of_framework(function: Any) -> bool:
    """Return whether *function* itself, without what it wraps, is code of the frameworks, or ours."""
    # functools.wraps() copies __module__, but not the globals.
    code = getattr(function, "__globals__", None)
    module = type(function).__module__ if code is None else code.get("__name__", "")
    if not is_framework(module):
        return False
    return all(map(is_of_framework, decorators_of(function)))


def is_framework(module: str) -> bool:
    """Return whether *module* is in one of `_FRAMEWORKS`."""
    return module.partition(".")[0] in _FRAMEWORKS


def _usual(cls: Any, handlers: Mapping[str, object], *, shown: bool = True) -> Methods:
    """Return the methods to lock. *handlers*: functions, by method. *shown*: no site code wraps the view."""
    if not shown or overriding(cls, (*_DECIDING, *_ADDING)):
        return ALL_BUT_GET
    exempt = {"GET"}
    # The function under @api_view may treat HEAD and GET differently.
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
    """A guard that a class inherits, and that requests do not reach."""

    #: The class whose override does not call the next method in the MRO.
    hiding: type
    #: The base class whose method has the guard.
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
            # This guard overrides those of further bases, on purpose.
            return
        above.append(number)


def calls_super(function: Any, name: str, bases: Sequence[type]) -> bool:
    """Return whether *function* seems to call the method *name* of one of *bases*, a slice of the MRO.

    ``super().render()`` does not call ``post``. ``super(Last, self)``, with the last of *bases*, skips all.
    """
    codes = list(_codes(function, set()))
    # Without bytecode, as in a compiled module, assume that it does.
    if not any(code.co_code for code in codes):
        return True
    known = {word for code in codes for word in code.co_names}
    return any(_calls(code, name, bases, name in known) for code in codes)


def _codes(function: Callable[..., Any], seen: set[int]) -> Iterator[CodeType]:
    """Yield the code of *function*, of all that it wraps or encloses, and of the functions inside."""
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
    # Whether the next attribute is looked up on a base, and whether that is by ``super``.
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
                # This may be `parent = super()`, with `parent.post()` later.
                return True
            of_base = of_super = False
        elif step.opname == "LOAD_CONST":
            if of_super and word == name:
                # This is `getattr(super(), "post")`.
                return True
        elif step.opname.startswith("LOAD_") and isinstance(word, str):
            if word == "super":
                of_base = of_super = True
            elif word in names:
                of_base = not (of_super and word == last)
            elif not of_super:
                of_base = False
    return False


#: The attribute of a request with the guards that do not lock it, each with its `Locks`.
_EXEMPT = "_distlock_exempt"

#: Returns whether a guard locks an HTTP method.
Locks = Callable[[str], bool]


@contextmanager
def unlocked(request: object, guarded: Guarded, locks: Locks) -> Iterator[None]:
    """Raise `ConfigurationError` if the block changes the method of *request* to one that *locks* locks."""
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
    """Return a subclass of *cls* whose instances check each change of their method."""

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
