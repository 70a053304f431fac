"""One view in Django and in Flask, and one request for both: the same bytes, through their WSGI handlers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path
from flask import Flask, request
from werkzeug.test import run_wsgi_app

from distlock.grants.current import current_grants
from django_distlock import distributed_lock as django_lock
from flask_distlock import DistLock
from flask_distlock import distributed_lock as flask_lock

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
Look = Callable[[Any], object]


@dataclass(frozen=True)
class Sent:
    """A request."""

    path: bytes = b"/"
    query: bytes = b""
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    #: What else the server has put into the environment, or in the place of what it usually does.
    more: dict[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, Any]:
        return {
            "REQUEST_METHOD": self.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": self.path.decode("latin-1"),
            "QUERY_STRING": self.query.decode("latin-1"),
            "SERVER_NAME": "testserver",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": self.content_type,
            "CONTENT_LENGTH": str(len(self.body)),
            "wsgi.input": io.BytesIO(self.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()},
            **self.more,
        }


@dataclass(frozen=True)
class Got:
    """What became of it: the status and, if the view ran, the names that it held and what it saw."""

    status: int
    names: tuple[str, ...] | None = None
    seen: object = field(default=None, compare=False)
    body: str = field(default="", compare=False)


@contextmanager
def databases_left_alone() -> Iterator[None]:
    """Django's handler would close the connections of other tests; its test client prevents that so, too."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in signals:
            signal.connect(close_old_connections)


class Both:
    """A view behind *names* in either framework. *looks*: what it reads of Django's and Flask's request."""

    def __init__(self, *names: Any, looks: tuple[Look, Look] = (repr, repr), **words: Any) -> None:
        self._log: list[tuple[tuple[str, ...], object]] = []
        in_django, in_flask = looks

        @django_lock(*names, **words)
        def django_view(request: HttpRequest) -> HttpResponse:
            self._note(in_django, request)
            return HttpResponse("ok")

        @flask_lock(*names, **words)
        def flask_view() -> str:
            self._note(in_flask, request)
            return "ok"

        class Urls:
            urlpatterns = [path("", django_view)]

        self._urls = Urls
        self.app = Flask(__name__)
        self.app.config.from_mapping(DISTLOCK="dummy://", DEBUG=True)
        DistLock(self.app)
        self.app.add_url_rule("/", view_func=flask_view, methods=METHODS)

    def _note(self, look: Look, request: Any) -> None:
        names = tuple(name for one in current_grants() for name in one.grant.names)
        self._log.append((names, look(request)))

    def django(self, sent: Sent) -> Got:
        # Some tests have several of these, and Django has one ROOT_URLCONF.
        with (
            override_settings(ROOT_URLCONF=self._urls, DISTLOCK="dummy://", DEBUG=True),
            databases_left_alone(),
        ):
            return self._run(WSGIHandler(), sent)

    def flask(self, sent: Sent) -> Got:
        return self._run(self.app, sent)

    def __call__(self, sent: Sent) -> Got:
        """What both make of it, and it is the same."""
        django, flask = self.django(sent), self.flask(sent)
        assert django == flask, (django, flask)
        return django

    def _run(self, app: Any, sent: Sent) -> Got:
        self._log.clear()
        chunks, status, _ = run_wsgi_app(app, sent.environ(), buffered=True)
        names, seen = self._log[0] if self._log else (None, None)
        return Got(int(status.split()[0]), names, seen, b"".join(chunks).decode())
