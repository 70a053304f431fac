"""Runs one call under a guard: fills in the names, acquires the lock, observes it, answers its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.asyncio import async_unsafe

from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant
from distlock.web import guard
from distlock.web.body_before_lock import BATCH_MAX_BODY, BODY_BEFORE_LOCK, read_before_lock, read_for_batch
from distlock.web.guard_marks import Guarded
from distlock.web.guard_stack import stacked, upper_guards
from distlock.web.observer import Observer, Signals, Stopwatch, add_header, together
from distlock.web.results import refuse_coroutine, warn_of_stream
from django_distlock import conf
from django_distlock.conf import body_size, clients, warn_without_checks
from django_distlock.fresh.session import session_under
from django_distlock.fresh.user import compare, loaded_users
from django_distlock.guarding.atomic_requests import AsyncTransactions, SyncTransactions
from django_distlock.guarding.batch_transactions import run_in_batch
from django_distlock.guarding.call_context import CallContext, async_with_fence, bound_method
from django_distlock.guarding.open_transactions import mark_failed_for_rollback, refuse_left
from django_distlock.guarding.request import DjangoBody, DjangoRequest, answer_to, response_of
from django_distlock.guarding.view_classes import view_class
from django_distlock.private import makes_content_later, post_render_callbacks
from django_distlock.private_of_others import is_api_view
from django_distlock.signals import lock_acquired, lock_contended, lock_refused, lock_released

#: The attribute that marks a request whose response a framework makes from an exception, below the guard.
_RAISED = "_distlock_raised"

Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


@async_unsafe("A guard of sync code would block the event loop: write 'async def', or call sync_to_async().")
def run(
    guarded: Guarded,
    transactions: SyncTransactions,
    body: Callable[[], Any],
    context: CallContext,
    args: Arguments,
    kwargs: Keywords,
) -> Any:
    """Run *body* under the locks that the guard names for a call with these arguments. Return its result."""
    warn_without_checks()
    request, http, options = context.request, context.http, guarded.options
    uppers = upper_guards(guarded) if guarded.is_below else ()
    terms = clients.terms(guarded)
    parts = DjangoRequest(http, request) if http is not None and guarded.names.needs_request else None
    names = guarded.names.of_call(args, kwargs, terms.max_names, request=parts, is_method=context.is_method)
    if http is not None and (sent := DjangoBody(http)).length:
        if options.batch is None:
            read_before_lock(sent, terms, names, options.timeout, body_size(BODY_BEFORE_LOCK))
        else:
            read_for_batch(sent, terms, names, options.timeout, body_size(BATCH_MAX_BODY))
    if guarded.below is not None and guard.leaves_to_below(
        guarded, names, transactions, uppers, clients.terms
    ):
        with stacked(guarded, names, terms, observer_for(guarded, http), uppers):
            return body()

    session = None if http is None else session_under(guarded, http, uppers)
    refreshes = http is not None and conf.refreshes_user()

    def compare_first(grant: Grant) -> None:
        try:
            if session is not None:
                session.begun(grant)
            if http is not None and refreshes:
                compare(request, loaded_users(request, http))
        except BaseException as error:
            if session is not None:
                session.raised(error)
            raise

    if refreshes or session is not None:
        transactions.compare_first = compare_first

    def finished() -> Any:
        try:
            if http is not None and refreshes and (users := loaded_users(request, http)):
                compare(request, users)
            result = body()
        except BaseException as error:
            if session is not None:
                session.raised(error)
            raise
        if not isinstance(result, HttpResponseBase):
            refuse_coroutine(guarded.where, result)
        elif result.status_code >= 400:
            mark_failed_for_rollback(raised=hasattr(http, _RAISED))
        elif not getattr(result, "is_rendered", True):
            refuse_callbacks(guarded.where, result)
        if session is not None:
            session.returned(getattr(result, "status_code", 200))
        return result

    observer = observer_for(guarded, http)
    if options.batch is not None:
        return run_in_batch(guarded, terms, names, finished, transactions, session, observer)
    return guard.run(
        terms.client,
        names,
        finished,
        transactions,
        timeout=options.timeout,
        terms=terms.lock,
        fenced_in=terms.fenced_in,
        standby=terms.standby,
        observer=observer,
        companion=session,
        uppers=uppers,
    )


async def arun(
    guarded: Guarded,
    body: Callable[[], Awaitable[Any]],
    context: CallContext,
    args: Arguments,
    kwargs: Keywords,
) -> Any:
    """Do what `run` does, for an async *body*. Raises `ConfigurationError` if the guard has a fence."""
    warn_without_checks()
    request, http, options = context.request, context.http, guarded.options
    uppers = upper_guards(guarded) if guarded.is_below else ()
    parts = None if http is None else await DjangoRequest(http, request).prepare(guarded.names)
    terms = clients.terms(guarded)
    if terms.fenced_in is not None:
        row_is_lock = clients.settings(options.alias).row_is_lock
        raise ConfigurationError(async_with_fence(guarded, row_is_lock=row_is_lock))
    names = guarded.names.of_call(args, kwargs, terms.max_names, request=parts, is_method=context.is_method)
    if http is not None and (sent := DjangoBody(http)).length:
        # Reading may block. Only WSGI has an unread body, and its event loop serves this request alone.
        read_before_lock(sent, terms, names, options.timeout, body_size(BODY_BEFORE_LOCK))
    transactions = await AsyncTransactions.look_around(guarded.where)
    if guarded.below is not None and guard.leaves_to_below(
        guarded, names, transactions, uppers, clients.terms
    ):
        with stacked(guarded, names, terms, observer_for(guarded, http), uppers):
            return await body()

    session = None if http is None else session_under(guarded, http, uppers)

    async def finished() -> Any:
        try:
            if http is not None and conf.refreshes_user() and (users := loaded_users(request, http)):
                await sync_to_async(compare)(request, users)
            result = await body()
        except BaseException as error:
            if session is not None:
                session.raised(error)
            await transactions.finish()
            raise
        refuse_left(names, await transactions.finish())
        if session is not None:
            session.returned(getattr(result, "status_code", 200))
        return result

    return await guard.arun(
        terms.client,
        names,
        finished,
        transactions,
        timeout=options.timeout,
        terms=terms.lock,
        observer=observer_for(guarded, http),
        companion=session,
        uppers=uppers,
    )


def respond(guarded: Guarded, error: LockError, request: Any) -> HttpResponse:
    """Return the response of a view that ended in *error*. Raises *error* if it is not answered."""
    answer = answer_to(error, guarded.where, guarded.options.responds)
    if answer is None:
        raise error
    return response_of(answer, request)


def note_raised(request: Any) -> None:
    """Note that a framework is making the response to *request* from an exception."""
    setattr(request, _RAISED, True)


def refuse_callbacks(where: str, response: Any) -> None:
    """Raise `ConfigurationError` if the rendering of *response*, after the release, calls the site's code."""
    for callback in post_render_callbacks(response):
        name = getattr(callback, "__qualname__", repr(callback))
        raise ConfigurationError(
            f"{where} returned a response with add_post_render_callback({name}), which would run after the "
            "lock is released. Write 'return response.render()' in the view, which runs it under the lock, "
            "or put the decorator that adds it above @distributed_lock(…)."
        )


def warn_if_made_later(guarded: Guarded, response: Any) -> None:
    """Warn if code of the site makes the content of *response* after the lock is released."""
    if makes_content_later(response):
        warn_of_stream(guarded.where, guarded.streams_logged)


#: The name of the attribute in which the wrapper that a rule has put around a view keeps that view.
#: `sender_of` needs the view, because the wrapper can't be imported.
BEHIND_RULE = "__distlock_view__"

#: The signals of guards, in the order of the arguments of `Signals`.
_SIGNALS = (lock_acquired, lock_contended, lock_refused, lock_released)

#: The attribute of a request with the stopwatches of its guards.
_STOPWATCHES = "_distlock_stopwatches"


def sender_of(guarded: Guarded) -> object:
    """Return the sender of the signals of *guarded*: the function or the view class that can be imported."""
    if (bound := bound_method(guarded.function)) is not None:
        # `method_decorator` makes a guard for each call; the class's attribute is the same for all calls.
        return getattr(type(bound.func.__self__), bound.func.__name__)
    view = getattr(guarded.wrapper, BEHIND_RULE, guarded.wrapper)
    cls = view_class(view)
    # The class that @api_view makes has no importable name.
    return view if cls is None or is_api_view(cls) else cls


def observer_for(guarded: Guarded, request: HttpRequest | None) -> Observer | None:
    """Return the observer of this call of *guarded*, or None if it needs none.

    *request*: the request of a view; None for a plain function.
    """
    heard = (
        lock_acquired.receivers
        or lock_contended.receivers
        or lock_refused.receivers
        or lock_released.receivers
    )
    timed = request is not None and conf.server_timing()
    if not heard and not timed:
        return None
    return together(_signals(guarded, request) if heard else None, _stopwatch(request) if timed else None)


def add_server_timing(request: HttpRequest, response: HttpResponseBase) -> None:
    """Add to *response* how long the guards of *request* waited for their locks and held them."""
    add_header(getattr(request, _STOPWATCHES, ()), response.headers)


def _signals(guarded: Guarded, request: HttpRequest | None) -> Observer:
    sender = sender_of(guarded)
    sends = [partial(signal.send_robust, sender) for signal in _SIGNALS]
    return Signals(*sends, where=guarded.where, alias=guarded.options.alias, request=request)


def _stopwatch(request: HttpRequest | None) -> Observer:
    stopwatch = Stopwatch()
    request.__dict__.setdefault(_STOPWATCHES, []).append(stopwatch)
    return stopwatch
