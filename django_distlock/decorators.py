"""``@distributed_lock`` for views and for plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from distlock.web.decorator import UNSAFE_METHODS, Told, explaining
from distlock.web.settings import DEFAULT_ALIAS
from distlock.web.templates import NameSource
from django_distlock.classes import guard_class
from django_distlock.functions import guard_function
from django_distlock.viewclasses import is_api_view, view_class
from django_distlock.views import guard_view

P = ParamSpec("P")
R = TypeVar("R")


def distributed_lock(
    *names: NameSource,
    alias: str = DEFAULT_ALIAS,
    timeout: float | None = None,
    ttl: float | None = None,
    methods: Iterable[str] | None = None,
    fence: bool | str | None = None,
    on_contended: str = "respond",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let one call at a time run on all servers, for each value of *names*.

    *names*: templates such as ``"product_<int:id>"`` over the arguments of the decorated function, or
    callables that get its arguments and return one name or several. All are locked, or none. *alias*: which
    lock service of ``settings.DISTLOCK``. *timeout*: the longest wait, seconds; None: the alias's. *ttl*:
    lifetime without renewal, seconds; None: the alias's. *methods*: the HTTP methods that are locked; None:
    all of a function's, and POST, PUT, PATCH and DELETE of a class's. *on_contended*: ``"raise"`` lets
    `LockTimeout` out of the view, instead of an answer.

    It stands on views of every kind: functions, async ones, classes, their ``dispatch`` or one method,
    ``as_view()``, and those of REST framework. The transactions of ``ATOMIC_REQUESTS`` begin after the lock
    is taken and are committed before it is released, and whoever does not get the lock is answered. On any
    other function lock errors are raised. Raises `ConfigurationError` at import for what can never work.
    """
    told = Told(
        names,
        alias=alias,
        timeout=timeout,
        ttl=ttl,
        methods=methods,
        fence=fence,
        on_contended=on_contended,
    )

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if isinstance(function, type):
            return guard_class(function, told)
        cls = view_class(function)
        if cls is None:
            return guard_function(function, told)
        # To the site a view under @api_view is a function.
        return guard_view(function, told, methods=None if is_api_view(cls) else UNSAFE_METHODS)

    return explaining(told, decorate)
