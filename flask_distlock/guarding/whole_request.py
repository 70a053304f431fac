"""The whole of a request: its views' locks are released at its end, after every hook and teardown.

And what its guards hold goes with it to the thread in which Flask runs an async view.
"""

from __future__ import annotations

import functools
import logging
import math
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, got_request_exception
from flask.globals import app_ctx
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.wsgi import ClosingIterator

from distlock import clock
from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.grants.current import (
    CurrentGrant,
    Keeping,
    Kept,
    current_grants,
    keeping,
    kept_by_request,
    passed_on,
)
from distlock.locks.self_deadlock import apart
from distlock.web.answers import ANSWERED
from distlock.web.observer import Stopwatch, add_header
from distlock.web.results import warn_of_stream
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.request import stopwatches_of_request
from flask_distlock.private import put_around, runs_on_close

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from sqlalchemy.orm import Session

    Start = tuple[str, list[tuple[str, str]], OptExcInfo | None]

logger = logging.getLogger("distlock")


class KeptLock(Kept):
    """A lock that a request keeps. Closing `rest` releases it.

    *where*: the guarded function, for messages.
    """

    __slots__ = ("rest", "where")

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.rest = ExitStack()

    def end(self) -> None:
        """Release the lock: the request is over."""
        self.rest.close()

    def problem(self) -> LockError | None:
        """Return why the answer can't be success; None if it can."""
        return None

    @property
    def is_committed(self) -> bool:
        """Whether the work of the call was committed, so that its answer stands if the lock is lost."""
        return False


class KeptSession(KeptLock):
    """A lock over the transaction that a call may have left open in ``db.session``.

    *session*: None if the call has not used it, or if its transaction belongs to a test around the request.
    *fencing*: closed before the release. *changed*: whether the call has left changes for certain.
    *committed*: whether it has committed. *until_transaction*: release the lock when the transaction ends.
    """

    __slots__ = (
        "_committed",
        "_fencing",
        "_session",
        "_until_transaction",
        "changed",
        "committed",
        "refused",
    )

    def __init__(
        self,
        where: str,
        session: Session | None,
        fencing: ExitStack,
        *,
        changed: bool,
        committed: bool,
        until_transaction: bool,
    ) -> None:
        super().__init__(where)
        self._session = session
        self._fencing = fencing
        self._committed = committed
        self._until_transaction = until_transaction
        self.changed = changed
        #: Whether a transaction was committed since the call has ended.
        self.committed = False
        #: Why a COMMIT was refused.
        self.refused: LockLost | None = None

    @property
    def with_request(self) -> bool:
        return not self._until_transaction

    @property
    def is_committed(self) -> bool:
        return self.committed or (self._committed and not self.changed)

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.transaction_ended()

    def transaction_ended(self) -> None:
        """Release a lock that ends with its transaction, unless a call is inside it."""
        if self._until_transaction and not self.entered and not self._in_transaction():
            self._release()

    def end(self) -> None:
        """Roll back what is open, and release the lock: the request is over."""
        try:
            if self._session is not None:
                self._session.rollback()
        except Exception:
            # The connection is gone, and with it the transaction.
            logger.exception("db.session could not be rolled back at the end of the request.")
        finally:
            self._release()

    def problem(self) -> LockError | None:
        if not self.changed or self.committed:
            return None
        return self.refused or ConfigurationError(
            f"{self.where} returned with uncommitted changes in db.session, and nobody has committed them by "
            "the end of the request. They are rolled back: call db.session.commit() inside it."
        )

    def _in_transaction(self) -> bool:
        return self._session is not None and self._session.in_transaction()

    def _release(self) -> None:
        try:
            self._fencing.close()
        finally:
            self.rest.close()


def keep_in(request: Keeping, current: CurrentGrant, kept: KeptLock) -> ExitStack:
    """Let *request* end *kept*, the lock of *current*. Returns the stack that releases it when closed."""
    request.kept.append(replace(current, kept=kept))
    return kept.rest


Async = Callable[..., Coroutine[Any, Any, Any]]

#: The answer of the running request; None if it keeps no lock, or has none yet.
_answer: ContextVar[_Answer | None] = ContextVar("distlock_flask_answer", default=None)


def enclose(app: Flask) -> None:
    """Let the requests of *app* keep the locks of their views until ``wsgi_app`` returns or raises."""
    app.wsgi_app = _Enclosing(app, app.wsgi_app)  # type: ignore[method-assign]
    put_around(app, "process_response", lambda process: _answering(app, process))
    put_around(app, "async_to_sync", _passing_on)


def _answering(app: Flask, process: Callable[[Response], Response]) -> Callable[[Response], Response]:
    """Let *process* run the hooks of a response, and answer the lock errors that they raise."""
    #: The views whose callbacks were told.
    told: set[str] = set()

    def process_response(response: Response) -> Response:
        try:
            response = process(response)
        except ANSWERED as error:
            kept = _kept_locks(kept_by_request())
            if not (isinstance(error, LockLost) and kept and all(one.is_committed for one in kept)):
                # Flask would run all hooks again for an error of one of them.
                return app.make_response(app.handle_user_exception(error))
            logger.error(
                "A hook could not commit, because its lock was lost. What %s had committed stands, as does "
                "its answer: %s",
                kept[0].where,
                error,
            )
        stopwatches = stopwatches_of_request()
        if (request := kept_by_request()) is not None and request.kept:
            _answer.set(_Answer(response, stopwatches))
            _warn_of_callbacks(response, _kept_locks(request), told)
        else:
            add_header(stopwatches, response.headers)
        return response

    return process_response


def _warn_of_callbacks(response: Response, kept: Sequence[KeptLock], told: set[str]) -> None:
    """Warn once for each view of what *response* calls after the locks *kept* are released."""
    if kept and runs_on_close(response) and kept[0].where not in told:
        told.add(kept[0].where)
        logger.warning(
            "%s or a hook has used response.call_on_close(): what it calls runs after the lock is released. "
            "Do it in the view, in after_request or in a teardown.",
            kept[0].where,
        )


def _passing_on(run: Callable[[Async], Callable[..., Any]]) -> Callable[[Async], Callable[..., Any]]:
    """*run*, whose coroutines hold what the thread holds that waits for them."""

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


class _Answer:
    """The *response* of a request that keeps locks, made in the current app context.

    *stopwatches*: what its ``Server-Timing`` is made of once the locks are released.
    """

    def __init__(self, response: Response, stopwatches: Sequence[Stopwatch]) -> None:
        self.response = response
        self.stopwatches = stopwatches
        self._context = weakref.ref(app_ctx._get_current_object())  # type: ignore[attr-defined]

    @property
    def is_made_later(self) -> bool:
        """Whether code of the site makes the content while it is sent."""
        return self.response.is_streamed and not self.response.direct_passthrough

    @property
    def outlives_context(self) -> bool:
        """Whether the content goes on in the context of the request.

        `stream_with_context` enters the context again, whose teardowns run a second time after the last
        chunk.
        """
        return self._context() is not None


class _Enclosing:
    """The WSGI application *inner* of *app*, whose answer waits until its locks are released."""

    def __init__(self, app: Flask, inner: WSGIApplication) -> None:
        self._app = app
        self._inner = inner
        self._streams_told: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with apart(), keeping() as request:
            start = _Start(start_response, request)
            content: Iterable[bytes] = ()
            problem: Exception | None = None
            before = _answer.set(None)
            try:
                content = self._inner(environ, start)
                answer = _answer.get()
                if answer is not None and answer.is_made_later:
                    if answer.outlives_context:
                        content = _buffered(content, request, start)
                    # Werkzeug gives an answer to a lock error as a stream, too.
                    elif answer.response.status_code < 400 and (kept_locks := _kept_locks(request)):
                        warn_of_stream(kept_locks[0].where, self._streams_told)
            except LockLost as error:
                # A teardown's: everything before has its answer.
                if not request.kept:
                    raise
                problem = error
            except _StreamFailed as error:
                problem = error.why
            finally:
                answer = _answer.get()
                _answer.reset(before)
                _end(request)
            if not request.kept:
                # The request kept nothing, and its answer has gone out.
                return content
            kept = _kept_locks(request)
            if isinstance(problem, LockLost) and answer is not None and all(one.is_committed for one in kept):
                logger.error("A teardown could not commit, because its lock was lost: %s", problem)
                problem = None
                content = answer.response(environ, start)
            if problem is None and start.successful:
                problem = next(filter(None, (one.problem() for one in kept)), None)
            if problem is None:
                start.now(() if answer is None else answer.stopwatches)
                return content
            if hasattr(content, "close"):
                content.close()
            return self._failure(problem, kept[0].where, environ)(environ, start_response)

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


def _end(request: Keeping) -> None:
    """Release what *request* keeps, the innermost first, whatever the release of another has raised."""
    request.closed = True
    with ExitStack() as ends:
        for one in reversed(_kept_locks(request)):
            ends.callback(one.end)


def _kept_locks(request: Keeping | None) -> list[KeptLock]:
    """The locks that *request* has kept, the innermost first."""
    kept = () if request is None else (one.kept for one in request.kept)
    return [one for one in kept if isinstance(one, KeptLock)]


class _StreamFailed(Exception):
    """The content of a response could not be made under the lock. *why*: what to answer."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


def _buffered(content: Iterable[bytes], request: Keeping, start: _Start) -> Iterable[bytes]:
    """Make all of *content* now, under the locks of *request*, within the ``max_hold`` of each."""
    close = getattr(content, "close", lambda: None)
    chunks = []
    now = clock.now()
    # The grants of a dummy don't know when they were made.
    latest = min(
        ((max(one.grant.since, 0.0) or now) + one.max_hold for one in request.kept if not one.grant.released),
        default=math.inf,
    )
    try:
        for chunk in content:
            chunks.append(chunk)
            lost = start.successful and any(one.grant.lost for one in request.kept)
            if lost or clock.now() >= latest:
                where = _kept_locks(request)[0].where
                raise ConfigurationError(
                    f"{where} returned a response that is streamed in its request's context, as by "
                    "stream_with_context(). It is made under the lock, since teardowns run after its last "
                    "chunk, and before that the lock was lost, or held for MAX_HOLD. Return it whole, or "
                    "stream without the context what the view has read."
                )
    except Exception as error:
        close()
        raise _StreamFailed(error) from error
    return ClosingIterator(chunks, close)


class _Start:
    """``start_response`` of a request that may still fail: it waits where something is kept."""

    def __init__(self, start_response: StartResponse, request: Keeping) -> None:
        self._start_response = start_response
        self._keeping = request
        self._waiting: Start | None = None

    @property
    def successful(self) -> bool:
        """Whether an answer waits that says so."""
        return self._waiting is not None and self._waiting[0] < "4"

    def __call__(
        self, status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        if not self._keeping.kept:
            return self._start_response(status, headers, exc_info)
        self._waiting = status, headers, exc_info
        return self._write

    def now(self, stopwatches: Sequence[Stopwatch] = ()) -> Callable[[bytes], object] | None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        status, headers, exc_info = waiting
        if stopwatches:
            timed = Headers(headers)
            add_header(stopwatches, timed)
            headers = timed.to_wsgi_list()
        return self._start_response(status, headers, exc_info)

    def _write(self, content: bytes) -> None:
        if (write := self.now()) is not None:
            self._writer = write
        self._writer(content)
