"""Turns lock errors into Werkzeug exceptions, so that a site's own error handlers see them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, current_app, has_request_context, request
from werkzeug.exceptions import HTTPException, default_exceptions

from distlock.errors import LockError
from distlock.web.answers import ANSWERED, Answer, answered, render
from flask_distlock.private import error_handlers_of, is_of_smorest

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class LockAnswer(HTTPException):
    """The base of the exceptions for lock errors. `answer` has the stable ``code`` and ``retry_after``."""

    answer: Answer

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Without this method, Werkzeug would make a response, and Flask another one from it. If many requests
        # are refused, the two would be a good part of the cost.
        rendered = render(self.answer, _accept(environ))
        body = rendered.body.encode()
        headers = [*rendered.headers.items(), ("Content-Length", str(len(body)))]
        start_response(f"{rendered.status} {HTTPStatus(rendered.status).phrase.upper()}", headers)
        return [body]

    @property
    def response(self) -> Response | None:
        """The complete response, because Flask-RESTful makes its own without it. None outside a request."""
        if not has_request_context():
            return None
        rendered = render(self.answer, request.headers.get("Accept", ""))
        return current_app.response_class(rendered.body, rendered.status, rendered.headers)

    @response.setter
    def response(self, response: object) -> None:
        """Ignore *response*, which the ``__init__()`` of `HTTPException` sets."""

    @property
    def data(self) -> _Data:
        """The data from which Flask-RESTX, webargs and flask-smorest make their responses."""
        return _Data(self)

    def get_body(self, environ: WSGIEnvironment | None = None, scope: dict[str, Any] | None = None) -> str:
        return render(self.answer, _accept(environ)).body

    def get_headers(
        self, environ: WSGIEnvironment | None = None, scope: dict[str, Any] | None = None
    ) -> list[tuple[str, str]]:
        return list(render(self.answer, _accept(environ)).headers.items())


#: The headers that a library such as flask-smorest has to copy if it makes the response itself.
_KEPT = ("Retry-After", "Cache-Control")


class _Data(dict[str, Any]):
    """The members of the problem document, and hidden keys that flask-smorest reads."""

    def __init__(self, exception: LockAnswer) -> None:
        members = exception.answer.problem()
        super().__init__(members, message=exception.answer.detail)
        # Libraries ask for these keys by name. The keys must not appear in the body.
        headers = {key: value for key, value in exception.get_headers() if key in _KEPT}
        self._unseen = {"headers": headers, "errors": members}

    def __contains__(self, key: object) -> bool:
        return key in self._unseen or super().__contains__(key)

    def __missing__(self, key: str) -> Any:
        return self._unseen[key]


def exception_for(
    error: LockError, where: str, responds: bool = True, app: Flask | None = None
) -> HTTPException | None:
    """Return the exception for a request to *where* that ended in *error*; None: *error* is to be raised.

    *responds*: see `distlock.web.answers.answered`. *app*: the app of the request; None: the current one.
    """
    app = app or current_app
    answer = answered(
        error,
        where,
        # An app without DistLock lacks this key, and still has to report the error that DistLock is missing.
        contended_status=app.config.get("DISTLOCK_CONTENDED_STATUS", 423),
        debug=app.debug,
        responds=responds,
    )
    if answer is None:
        return None
    exception = _class_for(answer.status)(description=answer.detail)
    exception.answer = answer
    exception.__cause__ = error
    return exception


def answer_lock_errors(app: Flask) -> None:
    """Register error handlers for lock errors, unless the site has its own."""
    handlers = error_handlers_of(app)
    for error in ANSWERED:
        if not any(issubclass(base, LockError) and base in handlers for base in error.__mro__):
            handlers[error] = _answer
    if is_of_smorest(handlers.get(HTTPException)):
        # Without this handler, flask-smorest would replace our ``code`` by the status. Handlers of the site
        # still come first.
        handlers.setdefault(LockAnswer, lambda error: error)


def _answer(error: LockError) -> Any:
    exception = exception_for(error, str(request.endpoint))
    assert exception is not None  # *error* is one of ANSWERED.
    # This calls the site's handler for the status, if there is one.
    return current_app.handle_http_exception(exception)


@functools.cache
def _class_for(status: int) -> type[LockAnswer]:
    # Flask finds error handlers by class: a plain HTTPException with the code 423 has no handler for 423.
    base = default_exceptions[status]
    return type(f"Lock{base.__name__}", (LockAnswer, base), {})


def _accept(environ: WSGIEnvironment | None) -> str:
    return str((environ or {}).get("HTTP_ACCEPT", ""))
