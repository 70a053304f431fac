"""``@distributed_lock`` for views and for plain functions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from flask import current_app, has_request_context, request

from distlock.errors import ConfigurationError, LockError
from distlock.web import guard
from distlock.web.answers import log_level
from distlock.web.decorator import Guarded, Told, explaining, guards_of
from distlock.web.settings import DEFAULT_ALIAS
from distlock.web.templates import NameSource
from flask_distlock.exceptions import exception_for
from flask_distlock.placement import remember
from flask_distlock.request import FlaskRequest

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("distlock")


def distributed_lock(
    *names: NameSource,
    alias: str = DEFAULT_ALIAS,
    timeout: float | None = None,
    ttl: float | None = None,
    methods: Iterable[str] | None = None,
    on_contended: str = "respond",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let one call at a time run on all servers, for each value of *names*. Stands below ``@app.route``.

    *names*: templates such as ``"product_<int:id>"`` over the arguments of the decorated function, or
    callables that return one name or several; on a view they get the request and the view's arguments, else
    the function's. All are locked, or none. *alias*: which lock service of ``app.config["DISTLOCK"]``.
    *timeout*: the longest wait, seconds; None: the alias's. *ttl*: lifetime without renewal, seconds; None:
    the alias's. *methods*: the HTTP methods that are locked; None: all.

    On a view, whoever does not get the lock is answered by a Werkzeug exception. On any other function lock
    errors are raised. Raises `ConfigurationError` at import for what can never work.
    """
    told = Told(names, alias=alias, timeout=timeout, ttl=ttl, methods=methods, on_contended=on_contended)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        guarded = Guarded(function, told)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            if _is_view(guarded):
                response: R = _view(guarded, args, kwargs)
                return response
            if told.methods is not None:
                raise ConfigurationError(
                    f"{guarded.where} was not called as a view, so methods= would never lock: leave it out."
                )
            result: R = _call(guarded, args, kwargs, ())
            return result

        guarded.mark(wrapper)
        remember(function)
        return wrapper

    return explaining(told, decorate)


def _view(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not guarded.locks_method(request.method):
        return guarded.function(*args, **kwargs)
    try:
        response = _call(guarded, args, kwargs, (request,))
    except LockError as error:
        exception = exception_for(error)
        if exception is None:
            raise
        logger.log(log_level(error), "%s answered %s: %s", guarded.where, exception.code, error)
        raise exception from error
    if getattr(response, "is_streamed", False):
        logger.warning(
            "%s returned a streamed response: its content is made after the lock is released.", guarded.where
        )
    return response


def _call(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any], first: tuple[Any, ...]) -> Any:
    from flask_distlock.extension import current_state

    told = guarded.told
    state = current_state()
    client = state.services[told.alias]
    maximum = state.services.service(told.alias).max_names
    parts = FlaskRequest(request, state.user) if first else None
    names = guarded.names.of_call(args, kwargs, maximum, request=parts, first=first)
    transactions = state.sessions.transactions(guarded.where, is_view=bool(first))

    def body() -> Any:
        result = guarded.function(*args, **kwargs)
        transactions.settle(result)
        return result

    return guard.run(client, names, body, transactions, timeout=told.timeout, ttl=told.ttl)


def _is_view(guarded: Guarded) -> bool:
    """Whether this call is the current request's view, and not a function that some view calls."""
    if not has_request_context() or request.endpoint is None:
        return False
    view = current_app.view_functions.get(request.endpoint)
    return view is not None and guarded in guards_of(view)
