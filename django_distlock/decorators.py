"""``@distributed_lock`` for views and for plain functions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from django.http import HttpRequest
from django.views import View

from distlock.errors import ConfigurationError, LockError
from distlock.web import guard
from distlock.web.answers import log_level
from distlock.web.decorator import Guarded, Told, When, explaining
from distlock.web.settings import DEFAULT_ALIAS
from distlock.web.templates import NameSource
from django_distlock.conf import services, warn_without_checks
from django_distlock.request import DjangoRequest
from django_distlock.responses import response_for
from django_distlock.transactions import NoTransactions, ViewTransactions, take_over

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
    """Let one call at a time run on all servers, for each value of *names*.

    *names*: templates such as ``"product_<int:id>"`` over the arguments of the decorated function, or
    callables that get its arguments and return one name or several. All are locked, or none. *alias*: which
    lock service of ``settings.DISTLOCK``. *timeout*: the longest wait, seconds; None: the alias's. *ttl*:
    lifetime without renewal, seconds; None: the alias's. *methods*: the HTTP methods that are locked; None:
    all.

    On a view the transactions of ``ATOMIC_REQUESTS`` begin after the lock is taken and are committed before
    it is released, and whoever does not get the lock is answered. On any other function lock errors are
    raised. Raises `ConfigurationError` at import for what can never work.
    """
    told = Told(names, alias=alias, timeout=timeout, ttl=ttl, methods=methods, on_contended=on_contended)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return guard_function(function, told)

    return explaining(told, decorate)


def guard_function(
    function: Callable[..., Any],
    told: Told,
    *,
    methods: frozenset[str] | None = None,
    when: When | None = None,
) -> Callable[..., Any]:
    guarded = Guarded(function, told, methods=methods, when=when)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        request = args[0] if args else kwargs.get("request")
        if isinstance(request, HttpRequest):
            return _view(guarded, view_transactions, request, args, kwargs)
        refuse_misplaced(guarded, args)
        return _call(guarded, function_transactions, args, kwargs)

    view_transactions = ViewTransactions(take_over(wrapper, function), guarded.where, function)
    function_transactions = NoTransactions(guarded.where)
    guarded.mark(wrapper)
    return wrapper


def _view(
    guarded: Guarded,
    transactions: ViewTransactions,
    request: HttpRequest,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if not guarded.locks_method(request.method) or (
        guarded.when is not None and not guarded.when(*args, **kwargs)
    ):
        with transactions.unlocked():
            return guarded.function(*args, **kwargs)
    try:
        response = _call(guarded, transactions, args, kwargs, DjangoRequest(request))
    except LockError as error:
        answer = response_for(error, request)
        if answer is None:
            raise
        logger.log(log_level(error), "%s answered %d: %s", guarded.where, answer.status_code, error)
        return answer
    if getattr(response, "streaming", False):
        logger.warning(
            "%s returned a streaming response: its content is made after the lock is released.", guarded.where
        )
    return response


def _call(
    guarded: Guarded,
    transactions: ViewTransactions | NoTransactions,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    request: DjangoRequest | None = None,
) -> Any:
    warn_without_checks()
    told = guarded.told
    client = services[told.alias]
    names = guarded.names.of_call(args, kwargs, services.service(told.alias).max_names, request=request)
    return guard.run(
        client,
        names,
        lambda: guarded.function(*args, **kwargs),
        transactions,
        timeout=told.timeout,
        ttl=told.ttl,
    )


def refuse_misplaced(guarded: Guarded, args: tuple[Any, ...]) -> None:
    """Raise `ConfigurationError` where a call looks like a view's, but the guard stands too far inside."""
    if args and isinstance(args[0], View):
        raise ConfigurationError(
            f"@distributed_lock stands on the method {guarded.where}. Write above the class: "
            f'@method_decorator({guarded.told}, name="dispatch").'
        )
    if args and isinstance(getattr(args[0], "_request", None), HttpRequest):
        raise ConfigurationError(
            f"@distributed_lock stands below @api_view on {guarded.where}: write it above."
        )
    if guarded.told.methods is not None:
        raise ConfigurationError(
            f"{guarded.where} was not called with a request, so methods= would never lock: leave it out."
        )
