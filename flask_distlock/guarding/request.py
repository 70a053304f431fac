"""A Flask request, as lock names read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import IO, Any

from flask import Request, current_app
from werkzeug.exceptions import Unauthorized

from distlock.errors import ConfigurationError
from flask_distlock.private import has_stream

#: Gives the key of the current request's user, None for nobody.
UserKey = Callable[[], object]


class FlaskRequest:
    """A `distlock.web.names.request.Request`. *user*: what the extension was given for ``<user.pk>``."""

    def __init__(self, request: Request, user: UserKey | None = None) -> None:
        self._request = request
        self._user = user or _flask_login

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
            # The view may read the stream as if nobody had.
            request.stream = BytesIO(body)
        return body

    def query(self, name: str) -> Sequence[str]:
        return self._request.args.getlist(name)

    def form(self, name: str) -> Sequence[str]:
        found = self._request.form.getlist(name)
        # Making the form of the body has used up the stream.
        self.body()
        return found

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def user(self) -> object:
        key = self._user()
        if key is None:
            raise Unauthorized
        return key


class FlaskBody:
    """A `distlock.web.bodies.Body`: what the WSGI server gives, before Werkzeug has made a stream of it."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def length(self) -> int | None:
        length = self._request.content_length
        # Without a length, a body has an end only where the server says that it marks it.
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
