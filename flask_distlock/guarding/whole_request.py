"""The whole of a request: what it keeps is let go at its end, after every hook and teardown, whatever raised.

And what its guards hold goes with it to the thread in which Flask runs an async view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, got_request_exception
from werkzeug.exceptions import HTTPException, InternalServerError

from distlock.blocks import apart
from distlock.current_grants import Keeping, current_grants, keeping, passed_on
from distlock.errors import LockError, LockLost
from distlock.web.answers import ANSWERED
from flask_distlock.exceptions import exception_for
from flask_distlock.guarding.kept_lock import KeptLock
from flask_distlock.private import put_around

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    Start = tuple[str, list[tuple[str, str]], OptExcInfo | None]

Async = Callable[..., Coroutine[Any, Any, Any]]


def enclose(app: Flask) -> None:
    """Let the requests of *app* keep locks until the transactions under them have ended."""
    app.wsgi_app = _Enclosing(app, app.wsgi_app)  # type: ignore[method-assign]
    put_around(app, "process_response", lambda process: _answering(app, process))
    put_around(app, "async_to_sync", _passing_on)


def _answering(app: Flask, process: Callable[[Response], Response]) -> Callable[[Response], Response]:
    """*process*, whose lock errors are answered."""

    def process_response(response: Response) -> Response:
        try:
            return process(response)
        except ANSWERED as error:
            # Flask would run all hooks again for an error of one of them.
            return app.make_response(app.handle_user_exception(error))

    return process_response


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


class _Enclosing:
    """The WSGI application *inner* of *app*, whose answer waits until it is certain."""

    def __init__(self, app: Flask, inner: WSGIApplication) -> None:
        self._app = app
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with apart(), keeping() as request:
            start = _Start(start_response, request)
            content: Iterable[bytes] = ()
            problem: LockError | None = None
            try:
                content = self._inner(environ, start)
            except LockLost as error:
                # A teardown's: everything before has its answer.
                if not request.kept:
                    raise
                problem = error
            finally:
                request.closed = True
                for one in request.kept:
                    if isinstance(one.kept, KeptLock):
                        one.kept.end()
            if not request.kept:
                # Nothing was kept, and the answer has gone out.
                return content
            kept = [one.kept for one in request.kept if isinstance(one.kept, KeptLock)]
            if problem is None and start.successful:
                problem = next(filter(None, (one.problem() for one in kept)), None)
            if problem is None:
                start.now()
                return content
            if hasattr(content, "close"):
                content.close()
            return self._answer(problem, kept[0].where, environ)(environ, start_response)

    def _answer(self, problem: LockError, where: str, environ: WSGIEnvironment) -> HTTPException:
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

    def now(self) -> Callable[[bytes], object] | None:
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else self._start_response(*waiting)

    def _write(self, content: bytes) -> None:
        if (write := self.now()) is not None:
            self._writer = write
        self._writer(content)
