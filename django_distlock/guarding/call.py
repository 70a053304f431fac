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
from django_distlock.guarding.batches import run_in_batch
from django_distlock.guarding.leftovers import give_up_failed, refuse_left
from django_distlock.guarding.observers import observer_for
from django_distlock.guarding.placement import Standing
from django_distlock.guarding.request import DjangoRequest
from django_distlock.guarding.responses import answer_to, response_of
from django_distlock.guarding.transactions import AsyncTransactions, SyncTransactions
from django_distlock.private import makes_content_later

Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


@async_unsafe("A guard of sync code would block the event loop: write 'async def', or call sync_to_async().")
def run(
    guarded: Guarded,
    transactions: SyncTransactions,
    body: Callable[[], Any],
    standing: Standing,
    args: Arguments,
    kwargs: Keywords,
) -> Any:
    """Run *body* under the locks that the call with *args* and *kwargs*, which is *standing*, names."""
    warn_without_checks()
    request, told = standing.request, guarded.told
    terms = clients.terms(guarded)
    names = guarded.names.of_call(
        args,
        kwargs,
        terms.max_names,
        request=None if request is None else DjangoRequest(request),
        is_method=standing.is_method,
    )

    def finished() -> Any:
        result = body()
        if not isinstance(result, HttpResponseBase):
            refuse_coroutine(guarded.where, result)
        elif result.status_code >= 400:
            give_up_failed()
        return result

    if told.batch is not None:
        return run_in_batch(
            guarded, terms, names, finished, transactions, request, observer_for(guarded, request)
        )
    return guard.run(
        terms.client,
        names,
        finished,
        transactions,
        timeout=told.timeout,
        terms=terms.lock,
        fenced_in=terms.fenced_in,
        standby=terms.standby,
        observer=observer_for(guarded, request),
    )


async def arun(
    guarded: Guarded,
    body: Callable[[], Awaitable[Any]],
    standing: Standing,
    args: Arguments,
    kwargs: Keywords,
) -> Any:
    """`run`, for an async *body*."""
    warn_without_checks()
    request, told = standing.request, guarded.told
    parts = None if request is None else await DjangoRequest(request).prepare(guarded.names)
    terms = clients.terms(guarded)
    if terms.fenced_in is not None:
        row_is_lock = clients.settings(told.alias).row_is_lock
        raise ConfigurationError(async_with_fence(guarded, row_is_lock=row_is_lock))
    names = guarded.names.of_call(args, kwargs, terms.max_names, request=parts, is_method=standing.is_method)
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
        terms=terms.lock,
        observer=observer_for(guarded, request),
    )


def respond(guarded: Guarded, error: LockError, request: Any) -> HttpResponse:
    """The response of a view that ended in *error*. Raises *error* if it is not answered."""
    answer = answer_to(error, guarded.where, guarded.told.responds)
    if answer is None:
        raise error
    return response_of(answer, request)


def warn_if_made_later(guarded: Guarded, response: Any) -> None:
    """Warn if code of the site makes the content of *response* when the lock is released."""
    if makes_content_later(response):
        warn_of_stream(guarded.where)
