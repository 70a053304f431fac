"""The guard around one function: a view, a method of a class-based view, or plain code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction

from distlock.errors import ConfigurationError, LockError
from distlock.web.decorator import UNSAFE_METHODS, Guarded, Told, When
from distlock.web.names.sources import where_of
from django_distlock.guarding.advice import async_in_transaction
from django_distlock.guarding.call import Arguments, Keywords, arun, look_over, respond, run
from django_distlock.guarding.placement import Standing, bound_method, is_method
from django_distlock.guarding.transactions import (
    EveryAlias,
    NoTransactions,
    Opened,
    ViewTransactions,
    take_over,
)
from django_distlock.guarding.viewclasses import view_class


def guard_function(
    function: Callable[..., Any],
    told: Told,
    *,
    methods: frozenset[str] | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """*function*, guarded. *methods*: what is locked where *told* does not say; None: every HTTP method."""
    if hasattr(function, "_ninja_operation"):
        raise ConfigurationError(
            f"@{told} stands above the decorator of django-ninja on {where_of(function)}, so that requests "
            "go past it: write it below."
        )
    return wrap(Guarded(function, told, methods=methods, when=when), function)


def wrap(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of *function*, and is found as the guard."""
    takes_self = is_method(guarded.function)
    # Names are made of what the caller gives, and that is not the method's own first argument.
    caller_sees: Callable[..., Any] | None = None
    if (bound := bound_method(guarded.function)) is not None:
        caller_sees, owner = bound, type(bound.func.__self__)
        guarded.where = f"{owner.__module__}.{owner.__qualname__}.{bound.func.__name__}"
    elif takes_self:
        caller_sees = functools.update_wrapper(functools.partial(guarded.function, None), guarded.function)
    if caller_sees is not None:
        guarded.names = guarded.told.names.bind(caller_sees)

    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            standing = Standing.of(guarded, args, kwargs, takes_self=takes_self)
            return await _acall(guarded, every, standing, args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            standing = Standing.of(guarded, args, kwargs, takes_self=takes_self)
            call = _acall if standing.is_async else _call
            return call(guarded, every, standing, args, kwargs)

    every = take_over(wrapper, function)
    guarded.mark(wrapper)
    return wrapper


def _call(guarded: Guarded, every: EveryAlias, standing: Standing, args: Arguments, kwargs: Keywords) -> Any:
    def body() -> Any:
        return guarded.function(*args, **kwargs)

    given, request = standing.args, standing.request
    transactions = _transactions(guarded, every, standing)
    if standing.kind == "function":
        return run(guarded, transactions, body, given, kwargs, request)
    if standing.kind == "dispatch" and standing.is_rest:
        from django_distlock.guarding import rest

        return rest.run_dispatch(guarded, transactions, body, standing)
    if not _locks(guarded, standing, kwargs):
        with transactions.unlocked():
            return body()
    if standing.is_rest:
        from django_distlock.guarding import rest

        with rest.refusing(guarded, standing.view):
            return run(guarded, transactions, body, given, kwargs, request)
    try:
        response = run(guarded, transactions, body, given, kwargs, request)
    except LockError as error:
        return respond(guarded, error, request)
    return look_over(guarded, response)


async def _acall(
    guarded: Guarded, every: EveryAlias, standing: Standing, args: Arguments, kwargs: Keywords
) -> Any:
    async def body() -> Any:
        return await guarded.function(*args, **kwargs)

    given, request = standing.args, standing.request
    if standing.kind == "function":
        return await arun(guarded, body, given, kwargs, request)
    if standing.kind != "handler":
        on_class = view_class(guarded.wrapper) is not None or standing.view is not None
        for problem in async_in_transaction(guarded, standing.opted_out(every), on_class):
            raise ConfigurationError(problem)
    if not _locks(guarded, standing, kwargs):
        return await body()
    try:
        response = await arun(guarded, body, given, kwargs, request)
    except LockError as error:
        return respond(guarded, error, request)
    return look_over(guarded, response)


def _transactions(guarded: Guarded, every: EveryAlias, standing: Standing) -> Opened:
    def line() -> str:
        return standing.line(guarded)

    if standing.kind in {"function", "handler"}:
        return NoTransactions(guarded.where, line)
    return ViewTransactions(standing.opted_out(every), guarded.where, guarded.function, line)


def _locks(guarded: Guarded, standing: Standing, kwargs: Keywords) -> bool:
    """Whether this request is locked."""
    methods = guarded.methods
    if methods is None and standing.kind == "dispatch":
        methods = UNSAFE_METHODS
    if methods is not None and standing.request.method not in methods:
        return False
    return guarded.when is None or bool(guarded.when(*standing.args, **kwargs))
