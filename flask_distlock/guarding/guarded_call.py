"""One call of a guarded function: its names, its lock, its session, its answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flask import current_app, has_request_context, request
from flask.views import View
from werkzeug.exceptions import HTTPException

from distlock.errors import LockError
from distlock.terms import Terms
from distlock.web import guard
from distlock.web.batch import BatchSeat
from distlock.web.bodies import BATCH_MAX_BODY, BODY_BEFORE_LOCK, read_before_lock, read_for_batch
from distlock.web.decorator import Guarded, refuse_hidden
from distlock.web.guard_options import no_stream, one_name
from distlock.web.names.sources import HIDDEN
from distlock.web.observer import Observer
from distlock.web.results import SkippableCall, refuse_coroutine, refuse_skipping_view, warn_of_stream
from distlock.web.settings.clients import GuardTerms
from distlock.web.stack import UpperGuard, below, refuse_unlocked, stacked, upper_guards
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.request import FlaskRequest, observer_for, passed, status_of
from flask_distlock.guarding.server_session import session_under
from flask_distlock.guarding.state import GuardTransactions, current_state
from flask_distlock.guarding.views import locked_as_view
from flask_distlock.guarding.whole_request import served_request
from flask_distlock.private import views_of

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def wrap(function: Callable[..., Any], guarded: Guarded) -> Callable[..., Any]:
    """Return the function that replaces *function* and calls it as *guarded* says."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await acall(guarded, args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return call(guarded, args, kwargs)

    guarded.below = below(guarded, function)
    guarded.mark(wrapper)
    return wrapper


@dataclass(slots=True)
class GuardedCall:
    """One call of a guarded function, from its names to its answer."""

    guarded: Guarded
    terms: GuardTerms
    #: The names of its lock.
    lock: Terms
    names: Sequence[str]
    transactions: GuardTransactions
    observer: Observer | None
    #: Its place in a batch; None: it never shares its transaction.
    seat: BatchSeat | None = None
    #: An exception of the view that is an answer like any other.
    raised: HTTPException | None = None

    def is_left_to_below(self, uppers: Sequence[UpperGuard]) -> bool:
        """Tell whether the guard below takes the lock of this one, with which it forms a stack."""
        terms = current_state().clients.terms
        return guard.leaves_to_below(self.guarded, self.names, self.transactions, uppers, terms)

    def options(self, uppers: Sequence[UpperGuard]) -> dict[str, Any]:
        """Return the options of `guard.run` and `guard.arun`."""
        return {
            "timeout": self.guarded.told.timeout,
            "terms": self.lock,
            "fenced_in": self.terms.fenced_in,
            "standby": self.terms.standby,
            "observer": self.observer,
            "keep": self.transactions.keep,
            "companion": session_under(self.guarded, uppers) if self.transactions.is_view else None,
            "uppers": uppers,
        }

    def finish(self, result: Any) -> Any:
        """See to the *result* of the function, while the lock is held."""
        where = self.guarded.where
        refuse_coroutine(where, result)
        if self.transactions.is_view and _streams(result):
            if self.seat is not None:
                raise no_stream(where)
            if served_request() is None:
                # Otherwise it is decided at the end of the request whether the lock is kept for the content.
                warn_of_stream(where, self.guarded.streams_told)
        self.transactions.result = result
        return result

    def finish_raised(self, error: HTTPException) -> None:
        """Do as `finish`, for a view that has raised its answer, as ``abort(redirect(...))`` does.

        Raises *error* if it is a refusal: what the view has changed is rolled back then.
        """
        if not self.transactions.is_view or status_of(error) >= 400:
            raise error
        self.raised = self.finish(error)


def call(guarded: Guarded, args: Args, kwargs: Kwargs) -> Any:
    """Call the function of *guarded* under its lock."""
    locked = _is_locked(guarded, args, kwargs)
    if locked is False:
        return guarded.function(*args, **kwargs)
    is_view, this, uppers = locked is not None, None, upper_guards(guarded)
    work: Callable[[], Any] = functools.partial(guarded.function, *args, **kwargs)
    attempt = SkippableCall(guarded) if guarded.told.skips else None
    if attempt is not None:
        work = attempt.body(work)
    try:
        this = _begun(guarded, args, kwargs, is_view)
        if guarded.below is not None and this.is_left_to_below(uppers):
            with stacked(guarded, this.names, this.terms, this.observer, uppers):
                passed(guarded)
                return work()

        def body() -> Any:
            passed(guarded)
            try:
                return this.finish(work())
            except HTTPException as error:
                return this.finish_raised(error)

        result = guard.run(this.terms.client, this.names, body, this.transactions, **this.options(uppers))
    except LockError as error:
        if attempt is not None and attempt.is_skipped(error):
            return None
        if is_view and (answer := exception_for(error, guarded.where, guarded.told.responds)) is not None:
            raise answer from error
        raise
    finally:
        if this is not None and this.seat is not None:
            # Also of one that was interrupted before its part.
            this.seat.end()
    if this.raised is not None:
        raise this.raised
    return result


async def acall(guarded: Guarded, args: Args, kwargs: Kwargs) -> Any:
    """Do as `call`, for an async function, which is never in a batch."""
    locked = _is_locked(guarded, args, kwargs)
    if locked is False:
        return await guarded.function(*args, **kwargs)
    is_view, uppers = locked is not None, upper_guards(guarded)
    work: Callable[[], Any] = functools.partial(guarded.function, *args, **kwargs)
    attempt = SkippableCall(guarded) if guarded.told.skips else None
    if attempt is not None:
        work = attempt.body(work)
    try:
        this = _begun(guarded, args, kwargs, is_view)
        if guarded.below is not None and this.is_left_to_below(uppers):
            with stacked(guarded, this.names, this.terms, this.observer, uppers):
                passed(guarded)
                return await work()

        async def body() -> Any:
            passed(guarded)
            try:
                return this.finish(await work())
            except HTTPException as error:
                return this.finish_raised(error)

        result = await guard.arun(
            this.terms.client, this.names, body, this.transactions, **this.options(uppers)
        )
    except LockError as error:
        if attempt is not None and attempt.is_skipped(error):
            return None
        if is_view and (answer := exception_for(error, guarded.where, guarded.told.responds)) is not None:
            raise answer from error
        raise
    if this.raised is not None:
        raise this.raised
    return result


def _is_locked(guarded: Guarded, args: Args, kwargs: Kwargs) -> bool | None:
    """Tell whether *guarded* locks this call; None: the call is not that of a view."""
    locked = locked_as_view(guarded, args)
    if locked and guarded.when is not None:
        locked = bool(guarded.when(request, **kwargs))
    if locked is not None and guarded.told.skips:
        refuse_skipping_view(guarded)
    if locked is False:
        refuse_unlocked(guarded)
    return locked


def _begun(guarded: Guarded, args: Args, kwargs: Kwargs, is_view: bool) -> GuardedCall:
    state, told = current_state(), guarded.told
    if not is_view:
        # Where the route has no arguments, a guarded helper is called in the same way.
        if kwargs and has_request_context() and kwargs == request.view_args and request.endpoint is not None:
            refuse_hidden(guarded, views_of(current_app).get(request.endpoint) or guarded.function)
        guarded.refuse_methods()
    terms = state.clients.terms(guarded)
    asked = FlaskRequest(request._get_current_object(), state.user) if is_view else None  # type: ignore[attr-defined]
    if asked is not None:
        is_method = bool(args) and isinstance(args[0], View)
        names = guarded.names.of_call(
            args, kwargs, terms.max_names, request=asked, first=(request,), is_method=is_method
        )
    else:
        names = _names_of_function(guarded, args, kwargs, terms.max_names)
    state.session.watch(current_app)
    lock, seat = terms.lock, None
    if told.batch is not None:
        if len(set(names)) != 1:
            raise one_name(guarded.where, names)
        if asked is not None:
            read_for_batch(asked, terms, names, told.timeout, current_app.config[BATCH_MAX_BODY])
        seat = BatchSeat((guarded.where, terms.fenced_in))
        lock = replace(lock, seat=seat)
        transactions = state.session.in_batch(guarded.where, is_view, terms.fenced_in, seat, told.batch)
    else:
        if asked is not None:
            read_before_lock(asked, terms, names, told.timeout, current_app.config[BODY_BEFORE_LOCK])
        transactions = state.session.transactions(guarded.where, is_view, True)
    return GuardedCall(guarded, terms, lock, names, transactions, observer_for(guarded), seat)


def _names_of_function(guarded: Guarded, args: Args, kwargs: Kwargs, maximum: int) -> list[str]:
    try:
        return guarded.names.of_call(args, kwargs, maximum)
    except TypeError as error:
        if has_request_context():
            error.add_note(
                f"{guarded.where} was not called as a view, so its names come from its arguments alone. "
                f"{HIDDEN}"
            )
        raise


def _streams(result: Any) -> bool:
    """Tell whether code of the site makes the content of *result* later."""
    content = result[0] if isinstance(result, tuple) and result else result
    if isinstance(content, Iterator):
        return True
    return bool(getattr(content, "is_streamed", False)) and not content.direct_passthrough
