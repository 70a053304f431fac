"""A request whose method a guard does not lock may not become one that it does, below the guard.

The guard has looked at the method by then. A ``setup()``, an ``__init__()`` or a decorator of the site that
turns GET into what the client asks for, as ``_method=delete``, would run a handler without the lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.http import HttpRequest

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded

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
