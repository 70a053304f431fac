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
    passed_on,
)
from distlock.locks.self_deadlock import apart
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


class KeptLock(Kept):
    """A lock that outlives the call of its guard: a view's until ``wsgi_app`` returns, others' until COMMIT.

    Closing `rest` releases it. *where*: the guarded function, for messages.
    *session*: the ``db.session`` in which the call may have left a transaction open; None if it has not used
    it, or if its transaction belongs to a test around the request. *fencing*: closed before the release.
    *changed*: whether the call has left changes for certain. *committed*: whether it has committed.
    *until_transaction*: release the lock when the transaction ends.
    """

    def __init__(
        self,
        where: str,
        session: Session | None = None,
        fencing: ExitStack | None = None,
        *,
        changed: bool = False,
        committed: bool = False,
        until_transaction: bool = False,
    ) -> None:
        super().__init__()
        self.where = where
        self.rest = ExitStack()
        self._until_transaction = until_transaction
        self._session = session
        self._fencing = fencing
        self._committed = committed
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
        """Whether the work of the call was committed, so that its answer stands if the lock is lost."""
        return self.committed or (self._committed and not self.changed)

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.transaction_ended()

    def transaction_ended(self) -> None:
        """Release a lock that ends with its transaction, unless a call is inside it."""
        is_open = self._session is not None and self._session.in_transaction()
        if self._until_transaction and not self.entered and not is_open:
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
        """Return why the answer can't be success; None if it can."""
        if not self.changed or self.committed:
            return None
        return self.refused or ConfigurationError(
            f"{self.where} returned with uncommitted changes in db.session, and nobody has committed them by "
            "the end of the request. They are rolled back: call db.session.commit() inside it."
        )

    def _release(self) -> None:
        try:
            if self._fencing is not None:
                self._fencing.close()
        finally:
            self.rest.close()


class ServedRequest:
    """One request. It keeps the locks of its views, and its answer waits until they are released."""

    def __init__(self, start_response: StartResponse, keeping: Keeping) -> None:
        self.keeping = keeping
        #: The locks that it keeps or has kept, the innermost first.
        self.locks: list[KeptLock] = []
        #: Its response, if it keeps locks.
        self.response: Response | None = None
        #: Whether an answer waits that says so.
        self.successful = False
        #: Why the content of its response could not be made under the locks.
        self.failure: Exception | None = None
        self._start_response = start_response
        self._waiting: Start | None = None
        #: They give its ``Server-Timing`` once the locks are released.
        self._stopwatches: Sequence[Stopwatch] = ()
        self._context: Callable[[], object] = lambda: None

    def keep(self, current: CurrentGrant, lock: KeptLock) -> ExitStack:
        """End *lock*, that of *current*, with this request. Returns what releases it when closed."""
        self.keeping.kept.append(replace(current, kept=lock))
        self.locks.append(lock)
        return lock.rest

    def answer(self, response: Response, stopwatches: Sequence[Stopwatch]) -> None:
        """Take *response*, made in the current app context, for the answer."""
        self.response = response
        self._stopwatches = stopwatches
        self._context = weakref.ref(app_ctx._get_current_object())  # type: ignore[attr-defined]

    @property
    def outlives_context(self) -> bool:
        """Whether the content of the response goes on in the context of the request.

        `stream_with_context` enters the context again, whose teardowns run a second time after the last
        chunk.
        """
        return self._context() is not None

    @property
    def stands(self) -> bool:
        """Tell whether the work of all its views is committed: the answer is right without the locks."""
        return self.response is not None and all(lock.is_committed for lock in self.locks)

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        """Stand in for ``start_response``, which waits where the answer may still fail."""
        if not self.locks:
            return self._start_response(status, headers, exc_info)
        self._waiting = status, headers, exc_info
        self.successful = status < "4"
        return self._write

    def started(self) -> Callable[[bytes], object] | None:
        """Call the ``start_response`` of the server, if that has waited."""
        waiting, self._waiting = self._waiting, None
        self.successful = False
        if waiting is None:
            return None
        status, headers, exc_info = waiting
        if self._stopwatches:
            timed = Headers(headers)
            add_header(self._stopwatches, timed)
            headers = timed.to_wsgi_list()
        return self._start_response(status, headers, exc_info)

    def buffered(self, content: Iterable[bytes]) -> Iterable[bytes]:
        """Make all of *content* now, under the locks, within the ``max_hold`` of each. See `failure`."""
        close = getattr(content, "close", lambda: None)
        chunks = []
        now = clock.now()
        held = [one for one in self.keeping.kept if not one.grant.released]
        # The grants of a dummy don't know when they were made.
        latest = min(((max(one.grant.since, 0.0) or now) + one.max_hold for one in held), default=math.inf)
        try:
            for chunk in content:
                chunks.append(chunk)
                lost = self.successful and any(one.grant.lost for one in self.keeping.kept)
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

    def end(self) -> None:
        """Release the locks, the innermost first, whatever the release of another has raised."""
        self.keeping.closed = True
        with ExitStack() as ends:
            for lock in reversed(self.locks):
                ends.callback(lock.end)

    def _write(self, content: bytes) -> None:
        if (write := self.started()) is not None:
            self._writer = write
        self._writer(content)


_served: ContextVar[ServedRequest | None] = ContextVar("distlock_flask_request", default=None)


def served_request() -> ServedRequest | None:
    """Return the running request, if it keeps locks until its end."""
    request = _served.get()
    # Code that copied the context may outlive the request.
    return None if request is None or request.keeping.closed else request


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
        request = served_request()
        locks = [] if request is None else request.locks
        try:
            response = process(response)
        except ANSWERED as error:
            if not (isinstance(error, LockLost) and locks and all(lock.is_committed for lock in locks)):
                # Flask would run all hooks again for an error of one of them.
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
        request.answer(response, stopwatches)
        if runs_on_close(response) and (where := locks[0].where) not in told:
            told.add(where)
            logger.warning(
                "%s or a hook has used response.call_on_close(): what it calls runs after the lock is "
                "released. Do it in the view, in after_request or in a teardown.",
                where,
            )
        return response

    return process_response


def _passing_on(run: Callable[[Async], Callable[..., Any]]) -> Callable[[Async], Callable[..., Any]]:
    """Return *run*, whose coroutines hold what the thread holds that waits for them."""

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
    """The WSGI application *inner* of *app*, whose answer waits until its locks are released."""

    def __init__(self, app: Flask, inner: WSGIApplication) -> None:
        self._app = app
        self._inner = inner
        self._streams_told: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with apart(), keeping() as kept:
            request = ServedRequest(start_response, kept)
            content: Iterable[bytes] = ()
            problem: Exception | None = None
            before = _served.set(request)
            try:
                content = self._inner(environ, request.start)
                response = request.response
                if response is not None and response.is_streamed and not response.direct_passthrough:
                    content = self._streamed(content, request, response)
                    problem = request.failure
            except LockLost as error:
                # A teardown's: everything before has its answer.
                if not request.locks:
                    raise
                problem = error
            finally:
                try:
                    request.end()
                finally:
                    _served.reset(before)
            if not request.locks:
                # The request kept nothing, and its answer has gone out.
                return content
            if isinstance(problem, LockLost) and request.stands:
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
        """See to *content*, which code of the site makes while it is sent."""
        # Werkzeug gives an answer to a lock error as a stream, too.
        if not request.outlives_context and response.status_code < 400:
            warn_of_stream(request.locks[0].where, self._streams_told)
        return request.buffered(content) if request.outlives_context else content

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
