"""One call of a guarded function: its names, its lock, its session, its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import current_app, has_request_context, request
from flask.views import View
from werkzeug.exceptions import HTTPException

from distlock.errors import LockError
from distlock.locks import Locks
from distlock.web import guard
from distlock.web.decorator import Guarded
from distlock.web.names.sources import HIDDEN
from distlock.web.observer import Observer
from distlock.web.results import refuse_coroutine, warn_of_stream
from distlock.web.terms import fence_for
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.observers import observer_for
from flask_distlock.guarding.request import FlaskRequest
from flask_distlock.guarding.required import passed
from flask_distlock.guarding.state import State, current_state
from flask_distlock.guarding.status import status_of
from flask_distlock.guarding.views import locked_as_view
from flask_distlock.sql.sessions import SessionTransactions, bind_of

R = TypeVar("R")


@dataclass(slots=True)
class Ask:
    """What one call asks for."""

    guarded: Guarded
    client: Locks
    names: Sequence[str]
    transactions: SessionTransactions
    fence: str | None
    standby: Locks | None
    observer: Observer | None
    #: What the view has raised, and is an answer like any other.
    raised: HTTPException | None = None

    def finish(self, result: Any) -> Any:
        """See to the *result* of the function, while the lock is held."""
        where = self.guarded.where
        refuse_coroutine(where, result)
        if self.transactions.is_view and _streams(result):
            warn_of_stream(where)
        self.transactions.result = result
        return result

    def finish_raised(self, error: HTTPException) -> None:
        """`finish`, for a view that has raised its answer, as ``abort(redirect(...))`` does.

        Raises *error* if it is a refusal: what the view has changed is rolled back then.
        """
        if not self.transactions.is_view or status_of(error) >= 400:
            raise error
        self.raised = self.finish(error)

    def end(self, result: R) -> R:
        """*result*, which was raised or returned, once the lock is let go or kept."""
        if self.raised is not None:
            raise self.raised
        return result


def call(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of *guarded* under its lock."""
    with _asking(guarded, args, kwargs) as ask:
        if ask is None:
            return guarded.function(*args, **kwargs)

        def body() -> Any:
            passed(guarded)
            try:
                return ask.finish(guarded.function(*args, **kwargs))
            except HTTPException as error:
                return ask.finish_raised(error)

        result = guard.run(
            ask.client,
            ask.names,
            body,
            ask.transactions,
            timeout=guarded.told.timeout,
            ttl=guarded.told.ttl,
            fence=ask.fence,
            standby=ask.standby,
            observer=ask.observer,
            keep=ask.transactions.keep,
        )
        return ask.end(result)


async def acall(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call`, for an async function."""
    with _asking(guarded, args, kwargs) as ask:
        if ask is None:
            return await guarded.function(*args, **kwargs)

        async def body() -> Any:
            passed(guarded)
            try:
                return ask.finish(await guarded.function(*args, **kwargs))
            except HTTPException as error:
                return ask.finish_raised(error)

        result = await guard.arun(
            ask.client,
            ask.names,
            body,
            ask.transactions,
            timeout=guarded.told.timeout,
            ttl=guarded.told.ttl,
            fence=ask.fence,
            standby=ask.standby,
            observer=ask.observer,
            keep=ask.transactions.keep,
        )
        return ask.end(result)


@contextmanager
def _asking(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Ask | None]:
    """What this call asks for; None: it is not locked. Out of a view, lock errors come as its answer."""
    locked = locked_as_view(guarded, args)
    if locked is None:
        yield _plain(guarded, args, kwargs)
    elif not locked or not _wanted(guarded, kwargs):
        yield None
    else:
        try:
            yield _view(guarded, args, kwargs)
        except LockError as error:
            exception = exception_for(error, guarded.where, guarded.told.responds)
            if exception is None:
                raise
            raise exception from error


def _wanted(guarded: Guarded, kwargs: dict[str, Any]) -> bool:
    return guarded.when is None or bool(guarded.when(request, **kwargs))


def _view(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ask:
    state = current_state()
    names = guarded.names.of_call(
        args,
        kwargs,
        state.clients.settings(guarded.told.alias).max_names,
        request=FlaskRequest(request, state.user),
        first=(request,),
        is_method=bool(args) and isinstance(args[0], View),
    )
    return _ask(state, guarded, names, is_view=True)


def _plain(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ask:
    guarded.refuse_methods()
    state = current_state()
    try:
        names = guarded.names.of_call(args, kwargs, state.clients.settings(guarded.told.alias).max_names)
    except TypeError as error:
        if has_request_context():
            error.add_note(
                f"{guarded.where} was not called as a view, so its names come from its arguments alone. "
                f"{HIDDEN}"
            )
        raise
    return _ask(state, guarded, names, is_view=False)


def _ask(state: State, guarded: Guarded, names: Sequence[str], is_view: bool) -> Ask:
    client = state.clients[guarded.told.alias]
    state.sessions.watch(current_app)
    transactions = state.sessions.transactions(guarded.where, is_view)
    told = guarded.told
    bind = bind_of(fence_for(state.clients.settings(told.alias), told))
    standby = state.clients.standby(told.alias)
    return Ask(guarded, client, names, transactions, bind, standby, observer_for(guarded))


def _streams(result: Any) -> bool:
    """Whether code of the site makes the content of *result* later."""
    content = result[0] if isinstance(result, tuple) and result else result
    if isinstance(content, Iterator):
        return True
    return bool(getattr(content, "is_streamed", False)) and not content.direct_passthrough
