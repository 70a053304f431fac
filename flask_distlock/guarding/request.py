"""What guards need of a Flask request: values for names, observers, and the guard that it has to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from operator import attrgetter
from typing import IO, Any

from flask import Flask, Request, current_app, g, has_request_context
from werkzeug.exceptions import HTTPException, Unauthorized
from werkzeug.wrappers import Response

from distlock.errors import ConfigurationError
from distlock.web.guard_marks import Guarded
from distlock.web.observer import Observer, Signals, Stopwatch, together
from flask_distlock.private import has_stream
from flask_distlock.signals import lock_acquired, lock_contended, lock_refused, lock_released, send

#: Returns the key of the current request's user, or None if no user is logged in.
UserKey = Callable[[], object]


@dataclass(slots=True)
class FlaskRequest:
    """A `distlock.web.names.request.Request`, and a `distlock.web.body_before_lock.Body`.

    As a `Body` it has the stream of the WSGI server, which Werkzeug has not wrapped yet.
    """

    _request: Request
    #: Returns the key for ``<user.pk>``; None: Flask-Login is asked.
    _user: UserKey | None = None

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def content_type(self) -> str:
        return str(self._request.environ.get("CONTENT_TYPE", ""))

    @property
    def query_string(self) -> bytes:
        return self._request.query_string

    def body(self) -> bytes:
        request = self._request
        if body := request.get_data():
            # Make a new stream, because the view may read it, too.
            request.stream = BytesIO(body)
        return body

    def query(self, name: str) -> Sequence[str]:
        return self._request.args.getlist(name)

    def form(self, name: str) -> Sequence[str]:
        found = self._request.form.getlist(name)
        # Parsing the form has consumed the stream. If the body was read before, body() makes a new stream.
        self.body()
        return found

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def user(self) -> object:
        key = (self._user or _flask_login)()
        if key is None:
            raise Unauthorized
        return key

    @property
    def length(self) -> int | None:
        length = self._request.content_length
        # A request without a length has no body, unless the server marks the body's end.
        return 0 if length is None and not self._request.environ.get("wsgi.input_terminated") else length

    def unread(self) -> IO[bytes] | None:
        if has_stream(self._request):
            return None
        stream: IO[bytes] = self._request.environ["wsgi.input"]
        return stream

    def put_back(self, content: IO[bytes]) -> None:
        self._request.environ["wsgi.input"] = content


def _flask_login() -> object:
    if not hasattr(current_app, "login_manager"):
        raise ConfigurationError(
            "<user.pk> in a lock's name needs to know the user: set Flask-Login up, or write "
            "DistLock(app, user=...) with a function that returns the user's key, None for nobody."
        )
    from flask_login import current_user

    user: Any = current_user
    if not user.is_authenticated:
        return None
    return user.pk if hasattr(user, "pk") else user.get_id()


def status_of(result: Any) -> int:
    """Return the HTTP status of *result*, the value of a view; 0 if the status is a text without a number.

    Raises `ValueError` for an invalid status, as Flask does.
    """
    if isinstance(result, tuple) and len(result) > 1:
        # The second item may be the headers instead.
        status = result[1]
        if isinstance(status, int | str):
            return Response(status=status).status_code
        return status_of(result[0])
    if isinstance(result, HTTPException):
        return result.get_response().status_code
    status = getattr(result, "status_code", 200)
    return status if isinstance(status, int) else 200


SERVER_TIMING = "DISTLOCK_SERVER_TIMING"

#: The signals of guards, in the order of the arguments of `Signals`.
_SIGNALS = (lock_acquired, lock_contended, lock_refused, lock_released)
_RECEIVERS = attrgetter("receivers")

#: The attribute of ``g`` with the stopwatches of the request's guards.
_STOPWATCHES = "_distlock_stopwatches"


def observer_for(guarded: Guarded) -> Observer | None:
    """Return the observer of this call of *guarded*, or None if it needs none."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    timed = app.config.get(SERVER_TIMING) and has_request_context()
    # Few sites have receivers. So first ask, which is cheap, whether any signal has a receiver of any app.
    listened = any(map(_RECEIVERS, _SIGNALS)) and any(signal.has_receivers_for(app) for signal in _SIGNALS)
    if not timed and not listened:
        return None
    observers: list[Observer] = []
    if listened:
        sends = (partial(send, signal, app) for signal in _SIGNALS)
        observers.append(Signals(*sends, where=guarded.where, alias=guarded.options.alias))
    if timed:
        stopwatch = Stopwatch()
        g.setdefault(_STOPWATCHES, []).append(stopwatch)
        observers.append(stopwatch)
    return together(*observers)


def stopwatches_of_request() -> Sequence[Stopwatch]:
    """Return and forget the stopwatches of the guards of the current request."""
    # Forget them, because an app context that a script has pushed may serve many requests.
    stopwatches: Sequence[Stopwatch] = g.pop(_STOPWATCHES, ())
    return stopwatches


@dataclass(slots=True, eq=False)
class Required:
    """A guard that one request has to pass. *view*: the method that has to call *guarded*, for messages."""

    guarded: Guarded
    view: str
    passed: bool = False

    def note_held(self, guarded: Guarded) -> None:
        """Note that the lock of *guarded* is held."""
        self.passed = self.passed or self.guarded is guarded

    def refuse(self) -> None:
        """Raise `ConfigurationError` unless the request has passed the guard."""
        if not self.passed:
            raise ConfigurationError(
                f"{self.view} did not call that of its base {self.guarded.where}, which is locked, and the "
                f"arguments of the route don't say what to lock instead: write @{self.guarded.options} above "
                "this one, too, with a name that they make, or call the base on every path."
            )


#: The guard that the running request has to pass before it commits, or None.
required_lock: ContextVar[Required | None] = ContextVar("distlock_flask_required", default=None)


@contextmanager
def requiring(guarded: Guarded, view: str) -> Iterator[Required]:
    """Require that the block, a request to *view*, passes *guarded*."""
    required = Required(guarded, view)
    before = required_lock.set(required)
    try:
        yield required
    finally:
        required_lock.reset(before)
