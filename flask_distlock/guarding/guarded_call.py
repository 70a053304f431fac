"""Runs one call of a guarded function: fills in the names, acquires the lock, and answers lock errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from flask import current_app, has_request_context, request
from flask.sessions import SecureCookieSessionInterface
from flask.views import View
from werkzeug.exceptions import HTTPException

from distlock.errors import LockError
from distlock.web import guard
from distlock.web.batch import BatchSeat
from distlock.web.body_before_lock import BATCH_MAX_BODY, BODY_BEFORE_LOCK, read_before_lock, read_for_batch
from distlock.web.guard_marks import Guarded, refuse_hidden
from distlock.web.guard_options import no_stream, one_name
from distlock.web.guard_stack import UpperGuard, refuse_if_relied_on, stack_with, stacked, upper_guards
from distlock.web.names.bound_names import HIDDEN
from distlock.web.results import SkippableCall, refuse_coroutine, refuse_skipping_view, warn_of_stream
from distlock.web.settings.clients import GuardTerms
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.app_state import GuardTransactions, current_state
from flask_distlock.guarding.kept_locks import ServedRequest, served_request
from flask_distlock.guarding.request import FlaskRequest, observer_for, required_lock, status_of
from flask_distlock.guarding.server_session import session_under
from flask_distlock.guarding.view_guards import locked_as_view
from flask_distlock.private import views_of

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def wrap(function: Callable[..., Any], guarded: Guarded) -> Callable[..., Any]:
    """Return the function that replaces *function* and calls it under *guarded*."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await acall(guarded, args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return call(guarded, args, kwargs)

    guarded.below = stack_with(guarded, function)
    guarded.mark(wrapper)
    return wrapper


@dataclass(slots=True)
class GuardedCall:
    """One call of a guarded function, from its names to its answer."""

    guarded: Guarded
    is_view: bool
    #: Calls the function.
    work: Callable[[], Any]
    #: The guards above this one in its stack, which leave their locks to it.
    uppers: Sequence[UpperGuard]
    #: Decides whether the call is skipped; None: it never is.
    attempt: SkippableCall | None
    #: The request that may keep the lock until its end, or None.
    served: ServedRequest | None = field(default_factory=served_request, init=False)
    terms: GuardTerms = field(init=False)
    #: The names to lock.
    names: Sequence[str] = field(init=False)
    transactions: GuardTransactions = field(init=False)
    #: The options of `guard.run` and `guard.arun`.
    options: guard.Options = field(init=False)
    #: The call's seat in a batch; None: it never shares its transaction.
    seat: BatchSeat | None = field(default=None, init=False)
    #: The exception that the view has raised instead of returning a response, such as a redirect, or None.
    raised: HTTPException | None = field(default=None, init=False)

    def begin(self, args: Args, kwargs: Kwargs) -> None:
        """Fill in the names, read the request's body, and choose the transactions and options of the call."""
        guarded, state, options = self.guarded, current_state(), self.guarded.options
        terms = self.terms = state.clients.terms(guarded)
        asked = None
        if self.is_view:
            asked = FlaskRequest(request._get_current_object(), state.user)  # type: ignore[attr-defined]
            is_method = bool(args) and isinstance(args[0], View)
            self.names = guarded.names.of_call(
                args, kwargs, terms.max_names, request=asked, first=(request,), is_method=is_method
            )
        else:
            self.names = _names_of_function(guarded, args, kwargs, terms.max_names)
        if self.served is None:
            state.watch(current_app)
        lock = terms.lock
        if options.batch is not None:
            if len(set(self.names)) != 1:
                raise one_name(guarded.where, self.names)
            if asked is not None:
                read_for_batch(asked, terms, self.names, options.timeout, current_app.config[BATCH_MAX_BODY])
            seat = self.seat = BatchSeat((guarded.where, terms.fenced_in))
            lock = replace(lock, seat=seat)
            self.transactions = state.in_batch(
                guarded.where, self.is_view, terms.fenced_in, seat, options.batch
            )
        else:
            if asked is not None and asked.length != 0:
                most = current_app.config[BODY_BEFORE_LOCK]
                read_before_lock(asked, terms, self.names, options.timeout, most)
            self.transactions = state.transactions(guarded.where, self.is_view, self.served)
        companion = None
        if self.is_view and not isinstance(current_app.session_interface, SecureCookieSessionInterface):
            companion = session_under(guarded, self.uppers)
        self.options = {
            "timeout": options.timeout,
            "terms": lock,
            "fenced_in": terms.fenced_in,
            "standby": terms.standby,
            "observer": observer_for(guarded),
            "keep": self.transactions.keep,
            "companion": companion,
            "uppers": self.uppers,
        }

    def is_left_to_below(self) -> bool:
        """Return whether this guard leaves its lock to the guard below: see `distlock.web.guard_stack`."""
        terms = current_state().clients.terms
        return guard.leaves_to_below(self.guarded, self.names, self.transactions, self.uppers, terms)

    @contextmanager
    def stacked(self) -> Iterator[None]:
        """Leave the lock to the guard below. The block has to call that guard."""
        with stacked(self.guarded, self.names, self.terms, self.options["observer"], self.uppers):
            if (required := required_lock.get()) is not None:
                required.note_held(self.guarded)
            yield

    def finish(self, result: Any) -> Any:
        """Check the *result* of the function while the lock is held, and return it."""
        where = self.guarded.where
        refuse_coroutine(where, result)
        # In a request that may keep the lock, `kept_locks` looks for streams, in the final response.
        if self.is_view and (self.seat is not None or self.served is None) and _streams(result):
            if self.seat is not None:
                raise no_stream(where)
            warn_of_stream(where, self.guarded.streams_logged)
        self.transactions.result = result
        return result

    def finish_raised(self, error: HTTPException) -> None:
        """Do as `finish`, for a view that raised its response, as ``abort(redirect(...))`` does.

        Keeps *error* in `raised`, which is raised after COMMIT. Raises *error* at once, which rolls the
        changes back, if its status is 400 or more, or if the function is no view.
        """
        if not self.is_view or status_of(error) >= 400:
            raise error
        self.raised = self.finish(error)

    def answer_error(self, error: LockError) -> None:
        """Raise *error*, or the view's answer to it. If *error* only skips the call, return None instead."""
        if self.attempt is not None and self.attempt.is_skipped(error):
            return
        guarded = self.guarded
        if (
            self.is_view
            and (answer := exception_for(error, guarded.where, guarded.options.responds)) is not None
        ):
            raise answer from error
        raise error


def call(guarded: Guarded, args: Args, kwargs: Kwargs) -> Any:
    """Call the function of *guarded* under its lock."""
    this = _locked_call(guarded, args, kwargs)
    if this is None:
        return guarded.function(*args, **kwargs)
    try:
        this.begin(args, kwargs)
        if guarded.below is not None and this.is_left_to_below():
            with this.stacked():
                return this.work()

        def body() -> Any:
            if (required := required_lock.get()) is not None:
                required.note_held(guarded)
            try:
                return this.finish(this.work())
            except HTTPException as error:
                return this.finish_raised(error)

        result = guard.run(this.terms.client, this.names, body, this.transactions, **this.options)
    except LockError as error:
        return this.answer_error(error)
    finally:
        if this.seat is not None:
            # Let the batch go on even if the call was interrupted before its part of the batch began.
            this.seat.end()
    if this.raised is not None:
        raise this.raised
    return result


async def acall(guarded: Guarded, args: Args, kwargs: Kwargs) -> Any:
    """Do as `call`, for an async function, which is never in a batch."""
    this = _locked_call(guarded, args, kwargs)
    if this is None:
        return await guarded.function(*args, **kwargs)
    try:
        this.begin(args, kwargs)
        if guarded.below is not None and this.is_left_to_below():
            with this.stacked():
                return await this.work()

        async def body() -> Any:
            if (required := required_lock.get()) is not None:
                required.note_held(guarded)
            try:
                return this.finish(await this.work())
            except HTTPException as error:
                return this.finish_raised(error)

        result = await guard.arun(this.terms.client, this.names, body, this.transactions, **this.options)
    except LockError as error:
        return this.answer_error(error)
    if this.raised is not None:
        raise this.raised
    return result


def _locked_call(guarded: Guarded, args: Args, kwargs: Kwargs) -> GuardedCall | None:
    """Return the call that *guarded* has to lock, or None if it does not lock this call of a view.

    Raises `ConfigurationError` if the guard can't work as it stands.
    """
    locked = locked_as_view(guarded, args, kwargs)
    options, attempt = guarded.options, None
    work: Callable[[], Any] = functools.partial(guarded.function, *args, **kwargs)
    if options.skips:
        if locked is not None:
            refuse_skipping_view(guarded)
        attempt = SkippableCall(guarded)
        work = attempt.body(work)
    if locked is False:
        refuse_if_relied_on(guarded)
        return None
    if locked is None:
        # A call with the arguments of the route is a call of the view. Without arguments, it may be a call of
        # a guarded helper.
        if kwargs and has_request_context() and kwargs == request.view_args and request.endpoint is not None:
            refuse_hidden(guarded, views_of(current_app).get(request.endpoint) or guarded.function)
        guarded.refuse_methods()
    return GuardedCall(
        guarded, locked is not None, work, upper_guards(guarded) if guarded.is_below else (), attempt
    )


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
    """Return whether code of the site makes the content of *result*, a view's response, after its return."""
    content = result[0] if isinstance(result, tuple) and result else result
    if isinstance(content, Iterator):
        return True
    return bool(getattr(content, "is_streamed", False)) and not content.direct_passthrough
