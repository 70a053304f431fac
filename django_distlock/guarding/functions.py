"""The guard around one function: a view, a method of a class-based view, or plain code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction

from distlock.errors import ConfigurationError, LockError
from distlock.web.decorator import Guarded, Told, When
from distlock.web.guard_options import Methods
from distlock.web.names.sources import where_of
from distlock.web.results import SkippableCall, refuse_skipping_view
from distlock.web.stack import below, refuse_unlocked
from django_distlock.guarding.advice import async_in_transaction
from django_distlock.guarding.call import (
    Arguments,
    Keywords,
    arun,
    note_raised,
    respond,
    run,
    warn_if_made_later,
)
from django_distlock.guarding.placement import Standing, bound_method
from django_distlock.guarding.transactions import EveryAlias, SyncTransactions, take_over
from django_distlock.guarding.usual_methods import unlocked
from django_distlock.guarding.viewclasses import view_class
from django_distlock.private_of_others import is_ninja_operation, note_ninja_exceptions


def guard_function(
    function: Callable[..., Any],
    told: Told,
    *,
    methods: Methods | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """*function*, guarded. *methods*: what is locked where *told* does not say; None: every HTTP method."""
    if is_ninja_operation(function):
        raise ConfigurationError(
            f"@{told} stands above the decorator of django-ninja on {where_of(function)}, so that requests "
            "go past it: write it below."
        )
    return wrap(Guarded(function, told, methods=methods, when=when), function)


def wrap(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that replaces *function*, and is recognised as the guard."""
    note_ninja_exceptions(note_raised)
    owner: object = None
    if (bound := bound_method(guarded.function)) is not None:
        owner = bound.func.__self__
        guarded.where = f"{type(owner).__module__}.{type(owner).__qualname__}.{bound.func.__name__}"
        # Its caller does not give the method's own first argument.
        guarded.names = guarded.told.names.bind(bound)
    takes_self = owner is None and _is_written_as_method(function)
    if takes_self:
        # A template over that argument is refused here: its caller does not give it.
        # What wraps it may be an object, as of Channels' database_sync_to_async: it is no function of Python.
        method = functools.partial(inspect.unwrap(function), None)
        guarded.told.names.bind(functools.update_wrapper(method, function))

    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            standing = Standing.of(guarded, owner, args, kwargs, takes_self)
            return await _acall(guarded, every, standing, args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            standing = Standing.of(guarded, owner, args, kwargs, takes_self)
            if standing.kind == "dispatch" and standing.is_async:
                return _acall(guarded, every, standing, args, kwargs)
            return _call(guarded, every, standing, args, kwargs)

    every = take_over(wrapper, function)
    guarded.below = below(guarded, function)
    guarded.mark(wrapper)
    return wrapper


def _is_written_as_method(function: Callable[..., Any]) -> bool:
    """Whether it stands in the body of a class, and its first argument is called as a method's is."""
    body = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not body or body.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), "") in {"self", "cls"}


def _call(guarded: Guarded, every: EveryAlias, standing: Standing, args: Arguments, kwargs: Keywords) -> Any:
    body = functools.partial(guarded.function, *args, **kwargs)
    ours: EveryAlias | None = None
    if standing.kind in {"view", "dispatch"}:
        ours = every if standing.view is None else standing.opted_out(every)
    line = functools.partial(standing.line, guarded)
    transactions = SyncTransactions(guarded.where, ours, guarded.function, line)
    if standing.kind == "function":
        attempt = SkippableCall(guarded)
        try:
            return run(guarded, transactions, attempt.body(body), standing, args, kwargs)
        except LockError as error:
            if attempt.is_skipped(error):
                return None
            raise
    refuse_skipping_view(guarded)
    if standing.kind == "dispatch" and standing.is_rest:
        from django_distlock.guarding import rest

        return rest.run_dispatch(guarded, transactions, body, standing)
    if not standing.is_locked_by(guarded):
        refuse_unlocked(guarded)
        with (
            unlocked(standing.request, guarded, functools.partial(standing.locks_method, guarded)),
            transactions.unlocked(),
        ):
            return body()
    if not _wanted(guarded, standing, args, kwargs):
        with transactions.unlocked():
            return body()
    if standing.view is not None and standing.is_rest:
        from django_distlock.guarding import rest

        with rest.refusing(guarded, standing.view):
            return run(guarded, transactions, body, standing, args, kwargs)
    try:
        response = run(guarded, transactions, body, standing, args, kwargs)
    except LockError as error:
        return respond(guarded, error, standing.request)
    if getattr(response, "streaming", False):
        warn_if_made_later(guarded, response)
    return response


async def _acall(
    guarded: Guarded, every: EveryAlias, standing: Standing, args: Arguments, kwargs: Keywords
) -> Any:
    body = functools.partial(guarded.function, *args, **kwargs)
    if standing.kind == "function":
        attempt = SkippableCall(guarded)
        try:
            return await arun(guarded, attempt.body(body), standing, args, kwargs)
        except LockError as error:
            if attempt.is_skipped(error):
                return None
            raise
    refuse_skipping_view(guarded)
    if standing.kind != "handler":
        on_class = view_class(guarded.wrapper) is not None or standing.view is not None
        for problem in async_in_transaction(guarded, standing.opted_out(every), on_class):
            raise ConfigurationError(problem)
    if not standing.is_locked_by(guarded):
        refuse_unlocked(guarded)
        with unlocked(standing.request, guarded, functools.partial(standing.locks_method, guarded)):
            return await body()
    if not _wanted(guarded, standing, args, kwargs):
        return await body()
    try:
        response = await arun(guarded, body, standing, args, kwargs)
    except LockError as error:
        return respond(guarded, error, standing.request)
    if getattr(response, "streaming", False):
        warn_if_made_later(guarded, response)
    return response


def _wanted(guarded: Guarded, standing: Standing, args: Arguments, kwargs: Keywords) -> bool:
    """Tell whether ``when`` of a rule lets this request be locked."""
    return guarded.when is None or bool(guarded.when(*args[standing.is_method :], **kwargs))
