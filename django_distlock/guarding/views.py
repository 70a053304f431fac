"""Puts guards around views, view classes, their methods, and plain functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import classonlymethod
from django.views import View

from distlock.errors import ConfigurationError, LockError
from distlock.web.guard_marks import Guarded, When
from distlock.web.guard_options import ALL_BUT_GET, GuardOptions, Methods
from distlock.web.guard_stack import refuse_if_relied_on, stack_with
from distlock.web.names.bound_names import where_of
from distlock.web.results import SkippableCall, refuse_skipping_view
from django_distlock.guarding import guarded_call
from django_distlock.guarding.atomic_requests import OptOuts, SyncTransactions, take_over
from django_distlock.guarding.call_context import CallContext, async_in_transaction, bound_method
from django_distlock.guarding.request import watching_method
from django_distlock.guarding.view_classes import guarded_callback, methods_of, usual_methods_of, view_class
from django_distlock.private_of_others import is_ninja_operation, is_rest, note_ninja_exceptions


def guard_view(
    callback: Callable[..., Any],
    options: GuardOptions,
    *,
    methods: Methods | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """Return the view *callback* in a guard that is above all its decorators.

    *methods*: the HTTP methods to lock if *options* names none. None: all. For a view class, any other value
    means its usual methods. *when*: called with the request and the view's arguments. If it returns a false
    value, the request runs without the lock. Raises `ConfigurationError` for a guard that can never work.
    """
    cls = view_class(callback)
    if cls is None:
        return guard_function(callback, options, methods=methods, when=when)
    if not is_rest(cls):
        return wrap(guarded_callback(callback, options, methods=methods, when=when), callback)
    from django_distlock.guarding import rest

    return rest.guard_callback(callback, options, methods=methods, when=when)


def guard_class(cls: type, options: GuardOptions) -> type:
    """Make ``as_view()`` of *cls* and of its subclasses return guarded views. Return *cls*."""
    if not issubclass(cls, View):
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} is a class, and no view: write @{options} above one of its "
            "methods."
        )
    # Guard what as_view() returns, because a subclass may override dispatch() or setup().
    inherited = inspect.getattr_static(cls, "as_view")

    def as_view(klass: type, *args: Any, **initkwargs: Any) -> Callable[..., Any]:
        callback: Callable[..., Any] = inherited.__get__(None, klass)(*args, **initkwargs)
        if hasattr(callback, "actions"):
            usual = usual_methods_of(callback)
            if (options.locked_methods(usual) or usual).isdisjoint(frozenset(methods_of(callback) or ())):
                # This route of a view set only reads, so it stays unguarded.
                return callback
        if view_class(callback) is None:
            raise ConfigurationError(
                f"as_view() of {klass.__module__}.{klass.__qualname__} gives a function that does not say "
                "whose view it is: a decorator in it needs functools.wraps."
            )
        return guard_view(callback, options, methods=ALL_BUT_GET)

    functools.update_wrapper(as_view, inherited.__func__)
    cls.as_view = classonlymethod(as_view)  # type: ignore[assignment,method-assign]
    return cls


def guard_function(
    function: Callable[..., Any],
    options: GuardOptions,
    *,
    methods: Methods | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    """Return *function* in a guard. *methods*, *when*: see `guard_view`."""
    if is_ninja_operation(function):
        raise ConfigurationError(
            f"@{options} stands above the decorator of django-ninja on {where_of(function)}, so that "
            "requests go past it: write it below."
        )
    return wrap(Guarded(function, options, methods=methods, when=when), function)


def wrap(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that replaces *function* and runs it under *guarded*."""
    note_ninja_exceptions(guarded_call.note_raised)
    owner: object = None
    if (bound := bound_method(guarded.function)) is not None:
        owner = bound.func.__self__
        guarded.where = f"{type(owner).__module__}.{type(owner).__qualname__}.{bound.func.__name__}"
        # Callers don't pass ``self``, which is bound already.
        guarded.names = guarded.options.names.bind(bound)
    takes_self = owner is None and _is_written_as_method(function)
    if takes_self:
        # Refuse templates that use ``self``, by binding the names without it. *function* may be an object,
        # such as that of Channels' database_sync_to_async, so bind the function that it wraps.
        method = functools.partial(inspect.unwrap(function), None)
        guarded.options.names.bind(functools.update_wrapper(method, function))

    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            context = CallContext.of(guarded, owner, args, kwargs, takes_self)
            return await _acall(guarded, opt_outs, context, args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            context = CallContext.of(guarded, owner, args, kwargs, takes_self)
            if context.kind == "dispatch" and context.is_async:
                return _acall(guarded, opt_outs, context, args, kwargs)
            return _call(guarded, opt_outs, context, args, kwargs)

    opt_outs = take_over(wrapper, function)
    guarded.below = stack_with(guarded, function)
    guarded.mark(wrapper)
    return wrapper


def _is_written_as_method(function: Callable[..., Any]) -> bool:
    """Return whether *function* is in the body of a class, and its first argument is ``self`` or ``cls``."""
    body = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not body or body.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), "") in {"self", "cls"}


def _call(
    guarded: Guarded,
    opt_outs: OptOuts,
    context: CallContext,
    args: guarded_call.Arguments,
    kwargs: guarded_call.Keywords,
) -> Any:
    body = functools.partial(guarded.function, *args, **kwargs)
    ours: OptOuts | None = None
    if context.kind in {"view", "dispatch"}:
        ours = opt_outs if context.view is None else context.opted_out(opt_outs)
    remedy = functools.partial(context.remedy, guarded)
    transactions = SyncTransactions(guarded.where, ours, guarded.function, remedy)
    if context.kind == "function":
        attempt = SkippableCall(guarded)
        try:
            return guarded_call.run(guarded, transactions, attempt.body(body), context, args, kwargs)
        except LockError as error:
            if attempt.is_skipped(error):
                return None
            raise
    if guarded.options.skips:
        refuse_skipping_view(guarded)
    if context.kind == "dispatch" and context.is_rest:
        from django_distlock.guarding import rest

        return rest.run_dispatch(guarded, transactions, body, context)
    if not context.locks_method(guarded, context.request.method):
        refuse_if_relied_on(guarded)
        with (
            watching_method(context.request, guarded, functools.partial(context.locks_method, guarded)),
            transactions.unlocked(),
        ):
            return body()
    if guarded.when is not None and not guarded.when(*args[context.is_method :], **kwargs):
        with transactions.unlocked():
            return body()
    if context.view is not None and context.is_rest:
        from django_distlock.guarding import rest

        with rest.refusing(guarded, context.view):
            return guarded_call.run(guarded, transactions, body, context, args, kwargs)
    try:
        response = guarded_call.run(guarded, transactions, body, context, args, kwargs)
    except LockError as error:
        return guarded_call.respond(guarded, error, context.request)
    if getattr(response, "streaming", False):
        guarded_call.warn_if_made_later(guarded, response)
    return response


async def _acall(
    guarded: Guarded,
    opt_outs: OptOuts,
    context: CallContext,
    args: guarded_call.Arguments,
    kwargs: guarded_call.Keywords,
) -> Any:
    body = functools.partial(guarded.function, *args, **kwargs)
    if context.kind == "function":
        attempt = SkippableCall(guarded)
        try:
            return await guarded_call.arun(guarded, attempt.body(body), context, args, kwargs)
        except LockError as error:
            if attempt.is_skipped(error):
                return None
            raise
    if guarded.options.skips:
        refuse_skipping_view(guarded)
    if context.kind != "handler":
        on_class = view_class(guarded.wrapper) is not None or context.view is not None
        for problem in async_in_transaction(guarded, context.opted_out(opt_outs), on_class):
            raise ConfigurationError(problem)
    if not context.locks_method(guarded, context.request.method):
        refuse_if_relied_on(guarded)
        with watching_method(context.request, guarded, functools.partial(context.locks_method, guarded)):
            return await body()
    if guarded.when is not None and not guarded.when(*args[context.is_method :], **kwargs):
        return await body()
    try:
        response = await guarded_call.arun(guarded, body, context, args, kwargs)
    except LockError as error:
        return guarded_call.respond(guarded, error, context.request)
    if getattr(response, "streaming", False):
        guarded_call.warn_if_made_later(guarded, response)
    return response
