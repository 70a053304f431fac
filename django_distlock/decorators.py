"""``@distributed_lock`` for views and for plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, Unpack

from distlock.web.decorator import UNSAFE_METHODS, Words, explaining
from distlock.web.decorator_line import told_here
from distlock.web.names.templates import NameSource
from django_distlock.guarding.classes import guard_class
from django_distlock.guarding.functions import guard_function
from django_distlock.guarding.viewclasses import is_api_view, view_class
from django_distlock.guarding.views import guard_view

P = ParamSpec("P")
R = TypeVar("R")


def distributed_lock(
    *names: NameSource, **words: Unpack[Words]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let one call at a time run on all servers, for each value of *names*.

    *names*: templates such as ``"product_<int:id>"`` over the arguments of the decorated function, or
    callables that get its arguments and return one name or several. All are locked, or none. *alias*: which
    lock service of ``settings.DISTLOCK``. *timeout*: the longest wait, seconds; None: the alias's. *ttl*:
    lifetime without renewal, seconds; None: the alias's. *methods*: the HTTP methods that are locked; None:
    all of a function's, and POST, PUT, PATCH and DELETE of a class's. *fence*: True, or the name of the
    database whose transaction passes the fence; None: as the alias is set. *on_contended*: ``"raise"`` lets
    `LockTimeout` out of the view, instead of an answer.

    It stands on views of every kind: functions, async ones, classes, their ``dispatch`` or one method,
    ``as_view()``, and those of REST framework. The transactions of ``ATOMIC_REQUESTS`` begin after the lock
    is taken and are committed before it is released. A request that does not get the lock is answered. On any
    other function lock errors are raised. Raises `ConfigurationError` at import for what can never work.
    """
    told = told_here(names, words)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if isinstance(function, type):
            return guard_class(function, told)
        cls = view_class(function)
        if cls is None:
            return guard_function(function, told)
        # To the site a view under @api_view is a function.
        return guard_view(function, told, methods=None if is_api_view(cls) else UNSAFE_METHODS)

    return explaining(told, decorate)
