"""Keeps the locks of views until the end of their request, after every hook and teardown.

This module also passes the current grants to the thread in which Flask runs an async view.
"""

from __future__ import annotations

import functools
import logging
import math
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from contextvars import Token
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from flask import Flask, Response, got_request_exception, has_app_context
from flask.globals import app_ctx
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.wsgi import ClosingIterator

from distlock import clock
from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.grants.current import (
    CurrentGrant,
    KeepingRequest,
    KeptGuardLock,
    current_grants,
    passed_on,
    request_around,
)
from distlock.locks.self_deadlock import blocks_around
from distlock.web.answers import ANSWERED
from distlock.web.observer import Stopwatch, add_header
from distlock.web.results import warn_of_stream
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.request import SERVER_TIMING, stopwatches_of_request
from flask_distlock.private import put_around, runs_on_close

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from sqlalchemy.orm import Session

    Start = tuple[str, list[tuple[str, str]], OptExcInfo | None]

Async = Callable[..., Coroutine[Any, Any, Any]]

logger = logging.getLogger("distlock")


@dataclass(eq=False)
class KeptLock(KeptGuardLock):
    """A lock that outlives the call of its guard.

    The lock is kept until ``wsgi_app`` returns. If it is a row, or the lock of a block or of a function that
    is no view, it is released as soon as its transaction ends. Closing `rest` releases the lock.
    """

    #: The guarded function or the block, for messages.
    where: str
    #: The ``db.session`` in which the call may have left a transaction open; None if it has used no session.
    session: Session | None = None
    #: Ends the fencing when it is closed, before the release. It is empty if the transactions pass no fence.
    fencing: ExitStack = field(default_factory=ExitStack)
    #: Whether the call has certainly left uncommitted changes.
    changed: bool = False
    #: Whether a transaction was committed during the call.
    committed_inside: bool = False
    #: Whether the lock is released when the transaction ends, and not with the request.
    until_transaction: bool = False
    #: Whether a transaction was committed after the end of the call.
    committed: bool = field(default=False, init=False)
    #: Why a COMMIT was refused, or None.
    refused: LockLost | None = field(default=None, init=False)
    rest: ExitStack = field(default_factory=ExitStack, init=False)
    #: Whether the transaction belongs to a test around the request.
    joined: bool = False
    #: Called at the end of the request.
    at_end: Callable[[], object] = field(default_factory=lambda: lambda: None, init=False)

    @property
    def with_request(self) -> bool:
        return not self.until_transaction

    @property
    def is_committed(self) -> bool:
        """Whether the call's work was committed, so that its response is right even if the lock is lost."""
        return self.committed or (self.committed_inside and not self.changed)

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.transaction_ended()

    def transaction_ended(self) -> None:
        """If the lock ends with a transaction that has ended, release it, unless a call has entered it."""
        is_open = self.session is not None and self.session.in_transaction()
        if self.until_transaction and not self.entered and not is_open:
            with self.rest:
                self.fencing.close()

    def end(self) -> None:
        """At the end of the request, roll back the transaction that is still open, and release the lock.

        The transaction of a test around the request is rolled back only if the call has left changes.
        """
        self.at_end()
        with self.rest, self.fencing:
            try:
                if self.session is not None and (self.changed or not self.joined):
                    self.session.rollback()
            except Exception:
                # The connection is broken, and the transaction has ended with it.
                logger.exception("db.session could not be rolled back at the end of the request.")

    def problem(self) -> LockError | None:
        """Return the error that replaces the response if changes that the call left were not committed."""
        if not self.changed or self.committed:
            return None
        return self.refused or ConfigurationError(
            f"{self.where} returned with uncommitted changes in db.session, and nobody has committed them by "
            "the end of the request. They are rolled back: call db.session.commit() inside it."
        )


@dataclass(eq=False)
class ServedRequest(KeepingRequest):
    """A request that is served in a ``with`` block.

    It keeps the locks of its views until the end of the block. Its response waits until these locks are
    released.
    """

    start_response: StartResponse
    #: The locks that the request keeps or has kept, the innermost first.
    locks: list[KeptLock] = field(default_factory=list, init=False)
    #: The response, if the request keeps locks.
    response: Response | None = field(default=None, init=False)
    #: Whether the response that waits has a status below 400.
    successful: bool = field(default=False, init=False)
    #: Why the content of the response could not be made under the locks, or None.
    failure: Exception | None = field(default=None, init=False)
    #: The stopwatches for ``Server-Timing``, which is added once the locks are released.
    stopwatches: Sequence[Stopwatch] = field(default=(), init=False)
    #: The app context in which the response was made.
    context: weakref.ref[Any] | None = field(default=None, init=False)
    #: The arguments of `start` while the response waits.
    _waiting: Start | None = field(default=None, init=False)
    _before: tuple[Token[Any], Token[Any]] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        if (around := request_around.get()) is not None:
            self.around = around.unreleased()
        # ``with`` blocks around a request are those of a test. The request stands for another user, who does
        # not hold their locks.
        self._before = request_around.set(self), blocks_around.set(())
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release all locks, the innermost first, even if the release of one raises."""
        self.closed = True
        assert self._before is not None
        request, blocks = self._before
        with ExitStack() as ends:
            ends.callback(request_around.reset, request)
            ends.callback(blocks_around.reset, blocks)
            for lock in reversed(self.locks):
                ends.callback(lock.end)

    def keep(self, current: CurrentGrant, lock: KeptLock) -> ExitStack:
        """Keep *lock*, of the grant *current*, until the request ends. Return the stack that releases it."""
        self.kept.append(replace(current, kept=lock))
        self.locks.append(lock)
        return lock.rest

    @property
    def needs_context(self) -> bool:
        """Whether the content of the response is made in the context of the request.

        `stream_with_context` enters the context again, so that teardowns run once more after the last chunk.
        """
        return self.context is not None and self.context() is not None

    @property
    def work_is_committed(self) -> bool:
        """Whether the work of all views is committed, so that the response is right without the locks."""
        return self.response is not None and all(lock.is_committed for lock in self.locks)

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        """Replace ``start_response``. If the request keeps locks, only keep the arguments for `started`.

        The request may still fail, and get another response.
        """
        if not self.locks:
            return self.start_response(status, headers, exc_info)
        self._waiting = status, headers, exc_info
        self.successful = status < "4"
        return self._write

    def started(self) -> Callable[[bytes], object] | None:
        """Make the call of the server's ``start_response`` that `start` has put off.

        Return the server's ``write``; None: no call was put off.
        """
        waiting, self._waiting = self._waiting, None
        self.successful = False
        if waiting is None:
            return None
        status, headers, exc_info = waiting
        if self.stopwatches:
            timed = Headers(headers)
            add_header(self.stopwatches, timed)
            headers = timed.to_wsgi_list()
        return self.start_response(status, headers, exc_info)

    def buffered(self, content: Iterable[bytes]) -> Iterable[bytes]:
        """Return all of *content*, made now, under the locks, within the ``max_hold`` of each.

        If that fails, return no content, and set `failure`.
        """
        close = getattr(content, "close", lambda: None)
        chunks = []
        now = clock.now()
        held = [one for one in self.kept if not one.grant.released]
        # Grants of the dummy backend don't know since when they are held.
        latest = min(((max(one.grant.since, 0.0) or now) + one.max_hold for one in held), default=math.inf)
        try:
            for chunk in content:
                chunks.append(chunk)
                lost = self.successful and any(one.grant.lost for one in self.kept)
                if lost or clock.now() >= latest:
                    raise ConfigurationError(
                        f"{self.locks[0].where} returned a response that is streamed in its request's "
                        "context, as by stream_with_context(). It is made under the lock, since teardowns "
                        "run after its last chunk, and before that the lock was lost, or held for MAX_HOLD. "
                        "Return it whole, or stream without the context what the view has read."
                    )
        except Exception as error:
            close()
            self.failure = error
            return ()
        return ClosingIterator(chunks, close)

    def _write(self, content: bytes) -> None:
        if (write := self.started()) is not None:
            self._writer = write
        self._writer(content)


def served_request() -> ServedRequest | None:
    """Return the running request if an app with `DistLock` serves it; else None."""
    request = request_around.get()
    # Code that copied the request's context may outlive the request.
    return request if isinstance(request, ServedRequest) and not request.closed else None


def enclose(app: Flask, watch: Callable[[Flask], None]) -> None:
    """Let the requests of *app* keep the locks of their views until ``wsgi_app`` returns or raises.

    *watch*: finds the session of *app*. Async views get the current grants, and lock errors of hooks are
    answered.
    """
    app.wsgi_app = _Enclosing(app, app.wsgi_app, watch)  # type: ignore[method-assign]
    put_around(app, "process_response", lambda process: _answering(app, process))
    put_around(app, "async_to_sync", _passing_on)


def _answering(app: Flask, process: Callable[[Response], Response]) -> Callable[[Response], Response]:
    """Return *process*, which runs the hooks of a response, wrapped to answer lock errors of the hooks.

    If the request keeps locks, it also notes the response and the stopwatches.
    """
    #: The views about whose callbacks a warning was logged.
    options: set[str] = set()

    def process_response(response: Response) -> Response:
        request = served_request()
        locks = [] if request is None else request.locks
        try:
            response = process(response)
        except ANSWERED as error:
            if not (isinstance(error, LockLost) and locks and all(lock.is_committed for lock in locks)):
                # If the error left this function, Flask would run all hooks again.
                return app.make_response(app.handle_user_exception(error))
            logger.error(
                "A hook could not commit, because its lock was lost. What %s had committed stands, as does "
                "its answer: %s",
                locks[0].where,
                error,
            )
        stopwatches = stopwatches_of_request() if app.config.get(SERVER_TIMING) else ()
        if request is None or not locks:
            add_header(stopwatches, response.headers)
            return response
        request.response, request.stopwatches = response, stopwatches
        request.context = weakref.ref(app_ctx._get_current_object())  # type: ignore[attr-defined]
        if runs_on_close(response) and (where := locks[0].where) not in options:
            options.add(where)
            logger.warning(
                "%s or a hook has used response.call_on_close(): what it calls runs after the lock is "
                "released. Do it in the view, in after_request or in a teardown.",
                where,
            )
        return response

    return process_response


def _passing_on(run: Callable[[Async], Callable[..., Any]]) -> Callable[[Async], Callable[..., Any]]:
    """Return *run* wrapped, so that its coroutines have the current grants of the thread that waits."""

    def async_to_sync(function: Async) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            mine = current_grants()
            if not mine:
                return run(function)(*args, **kwargs)

            async def passing() -> Any:
                with passed_on(mine):
                    return await function(*args, **kwargs)

            return run(passing)()

        return call

    return async_to_sync


class _Enclosing:
    """The WSGI application *inner* of *app*, whose responses wait until the locks are released."""

    def __init__(self, app: Flask, inner: WSGIApplication, watch: Callable[[Flask], None]) -> None:
        self._app = app
        self._inner = inner
        self._watch = watch
        self._streams_logged: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        content: Iterable[bytes] = ()
        problem: Exception | None = None
        if has_app_context():
            # The request gets this context, as in tests, and pushes none of its own that would call `watch`.
            self._watch(self._app)
        with ServedRequest(start_response) as request:
            try:
                content = self._inner(environ, request.start)
                response = request.response
                if response is not None and response.is_streamed and not response.direct_passthrough:
                    content = self._streamed(content, request, response)
                    problem = request.failure
            except LockLost as error:
                # A teardown has raised the error: lock errors of hooks and views are answered already.
                if not request.locks:
                    raise
                problem = error
        if not request.locks:
            # The request has kept no locks, so its response has not waited.
            return content
        if isinstance(problem, LockLost) and request.work_is_committed:
            logger.error("A teardown could not commit, because its lock was lost: %s", problem)
            problem = None
            assert request.response is not None
            content = request.response(environ, request.start)
        if problem is None and request.successful:
            for lock in request.locks:
                problem = problem or lock.problem()
        if problem is None:
            request.started()
            return content
        if hasattr(content, "close"):
            content.close()
        return self._failure(problem, request.locks[0].where, environ)(environ, start_response)

    def _streamed(
        self, content: Iterable[bytes], request: ServedRequest, response: Response
    ) -> Iterable[bytes]:
        """Return *content*. If it needs the request's context, make it now, under the locks; else warn."""
        # For Werkzeug, the responses to lock errors are streamed, too. They need no warning.
        if not request.needs_context and response.status_code < 400:
            warn_of_stream(request.locks[0].where, self._streams_logged)
        return request.buffered(content) if request.needs_context else content

    def _failure(self, problem: Exception, where: str, environ: WSGIEnvironment) -> HTTPException:
        if isinstance(problem, LockLost):
            answer = exception_for(problem, where, app=self._app)
            assert answer is not None
            return answer
        app = self._app
        got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=problem)
        propagate = app.config["PROPAGATE_EXCEPTIONS"]
        if propagate or (propagate is None and (app.testing or app.debug)):
            raise problem
        app.logger.error("%s %s: %s", environ["REQUEST_METHOD"], environ.get("PATH_INFO"), problem)
        return InternalServerError(original_exception=problem)
