"""One call under a guard: its names, the lock, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.asyncio import async_unsafe

from distlock.errors import ConfigurationError, LockError
from distlock.web import guard
from distlock.web.decorator import Guarded
from distlock.web.results import refuse_coroutine, warn_of_stream
from django_distlock.conf import clients, warn_without_checks
from django_distlock.guarding.advice import async_with_fence
from django_distlock.guarding.leftovers import give_up_failed, refuse_left
from django_distlock.guarding.observers import observer_for
from django_distlock.guarding.request import DjangoRequest
from django_distlock.guarding.responses import answer_to, response_of
from django_distlock.guarding.transactions import AsyncTransactions

Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


@async_unsafe("A guard of sync code would block the event loop: write 'async def', or call sync_to_async().")
def run(
    guarded: Guarded,
    transactions: guard.Transactions,
    body: Callable[[], Any],
    args: Arguments,
    kwargs: Keywords,
    request: Any = None,
) -> Any:
    """Run *body* under the locks that the call with *args* and *kwargs* names. *request*: if it has one."""
    warn_without_checks()
    parts = None if request is None else DjangoRequest(request)
    told = guarded.told
    terms = clients.terms(told)
    names = guarded.names.of_call(args, kwargs, terms.max_names, request=parts)
    return guard.run(
        terms.client,
        names,
        lambda: _finished(guarded, body()),
        transactions,
        timeout=told.timeout,
        ttl=told.ttl,
        fence=terms.fence,
        standby=terms.standby,
        observer=observer_for(guarded, request),
    )


async def arun(
    guarded: Guarded,
    body: Callable[[], Awaitable[Any]],
    args: Arguments,
    kwargs: Keywords,
    request: Any = None,
) -> Any:
    """`run`, for an async *body*."""
    warn_without_checks()
    parts = None if request is None else await DjangoRequest(request).prepare(guarded.names)
    told = guarded.told
    terms = clients.terms(told)
    if terms.fence is not None:
        raise ConfigurationError(
            async_with_fence(guarded, row_is_lock=clients.settings(told.alias).row_is_lock)
        )
    names = guarded.names.of_call(args, kwargs, terms.max_names, request=parts)
    transactions = await AsyncTransactions.look_around(guarded.where)

    async def finished() -> Any:
        try:
            result = await body()
        except BaseException:
            await transactions.finish()
            raise
        refuse_left(names, await transactions.finish())
        return result

    return await guard.arun(
        terms.client,
        names,
        finished,
        transactions,
        timeout=told.timeout,
        ttl=told.ttl,
        observer=observer_for(guarded, request),
    )


def respond(guarded: Guarded, error: LockError, request: Any) -> HttpResponse:
    """The response of a view that ended in *error*. Raises *error* if it is not answered."""
    answer = answer_to(error, guarded.where, guarded.told.responds)
    if answer is None:
        raise error
    return response_of(answer, request)


def look_over(guarded: Guarded, response: Any) -> Any:
    """Warn if code of the site makes the content of *response* later. Gives it back."""
    if getattr(response, "streaming", False) and getattr(response, "file_to_stream", None) is None:
        warn_of_stream(guarded.where)
    return response


def _finished(guarded: Guarded, result: Any) -> Any:
    refuse_coroutine(guarded.where, result)
    if isinstance(result, HttpResponseBase) and result.status_code >= 400:
        give_up_failed()
    return result
