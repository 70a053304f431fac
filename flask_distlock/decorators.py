"""``@distributed_lock`` for views, their classes and methods, and for plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, cast

from flask.views import View

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded, Told, Words, explaining
from distlock.web.decorator_line import told_here
from distlock.web.names.templates import NameSource
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.placement import remember, remember_class
from flask_distlock.private import is_made_by_as_view

F = TypeVar("F", bound=Callable[..., Any])


def distributed_lock(*names: NameSource, **words: Unpack[Words]) -> Callable[[F], F]:
    """Let one call at a time run on all servers, for each value of *names*. Stands below ``@app.route``.

    *names*: templates such as ``"product_<int:id>"`` over the arguments of the decorated function, or
    callables that return one name or several; on a view they get the request and the view's arguments, else
    the function's. All are locked, or none. *alias*: which lock service of ``app.config["DISTLOCK"]``.
    *timeout*: the longest wait, seconds; None: the alias's. *ttl*: lifetime without renewal, seconds; None:
    the alias's. *methods*: the HTTP methods that are locked; None: on a function all, on a class those that
    change something. *fence*: True, or the bind whose transaction passes the fence; None: as the alias is
    set. *on_contended*: ``"raise"`` lets a view raise `LockTimeout` instead of its answer.

    Decorates functions, async ones too, a `flask.views.View`, one of its methods, and what ``as_view()``
    returns. On a view, a request without the lock is answered by a Werkzeug exception. On any other
    function lock errors are raised. Raises `ConfigurationError` at import for what can never work.
    """
    told = told_here(names, words)

    def decorate(target: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(target, type):
            return _decorate_class(target, told)
        remember(target)
        guarded = Guarded(target, told)
        if is_made_by_as_view(target):
            guarded.where = f"{target.__module__}.{target.__name__}"
        return wrap(target, guarded)

    return cast(Callable[[F], F], explaining(told, decorate))


def _decorate_class(cls: type[Any], told: Told) -> type[Any]:
    where = f"{cls.__module__}.{cls.__qualname__}"
    if not issubclass(cls, View):
        raise ConfigurationError(
            f"{where} is a class, and no view: decorate the function that does the work."
        )
    if cls.dispatch_request is View.dispatch_request:
        raise ConfigurationError(
            f"{where} has no dispatch_request to lock: decorate the class that has one, or derive from "
            "MethodView."
        )
    guarded = Guarded(cls.dispatch_request, told)
    guarded.where = where
    # In place: views that as_view() has made of the class before are locked, too.
    cls.dispatch_request = wrap(cls.dispatch_request, guarded)  # type: ignore[method-assign]
    remember_class(cls, guarded)
    return cls
