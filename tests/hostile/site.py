"""One site in Django and in Flask whose locks are named by what clients send, and requests of any bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any, NamedTuple, Self

from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path
from flask import Flask
from werkzeug.test import run_wsgi_app

import distlock
import django_distlock
import flask_distlock
from distlock.testing.waits import engine_of
from tests.web.both import METHODS, Sent, databases_left_alone

#: By route: the name of the lock. An id is all that is left of the path, slashes included.
GUARDS = {
    "text/<path:id>": "text_<str:id>",
    "slug/<path:id>": "slug_<slug:id>",
    "number/<path:id>": "number_<int:id>",
    "uuid/<path:id>": "uuid_<uuid:id>",
    "query": "query_<str:query.id>",
    "form": "form_<str:form.id>",
    "json": "json_<str:json.id>",
    "cart": "cart_<int:json.lines[].sku>",
    "header": "header_<str:header.X-Id>",
    "user": "user_<user.pk>",
    "fixed": "product_2",
}
#: The same, by rules: their views know nothing of locks.
RULES = {"ruled/<path:id>": "ruled_<str:id>", "ruled": "ruled_<str:json.id>"}
FACES = ("django", "flask")
JSON = "application/json"
SESSIONS = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def code(self) -> str | None:
        """The code of a refusal of ours, or None. An answer to HEAD has no body."""
        if self.headers.get("Content-Type") != "application/problem+json" or not self.body:
            return None
        return str(json.loads(self.body)["code"])


class Site:
    """Views that note what they hold, in both frameworks and over one lock service."""

    def __init__(self, location: str, **alias: object) -> None:
        self.held: list[tuple[str, ...]] = []
        #: What views do while they hold the lock. They answer with what it returns.
        self.work: Callable[[], str] = lambda: "ok"
        self._settings = {"default": {"LOCATION": location, "TIMEOUT": 0, "PREFIX": "hostile", **alias}}
        self._open = ExitStack()
        self.app = Flask("hostile")
        self._clients: dict[str, distlock.Locks] = {}

    def __enter__(self) -> Self:
        flask_locks = self._in_flask()
        rules = [{"route": f"rule{n}", "lock": lock} for n, lock in enumerate(RULES.values())]
        self._open.enter_context(
            override_settings(
                ROOT_URLCONF=self._urls(),
                DISTLOCK=self._settings,
                DISTLOCK_RULES=rules,
                MIDDLEWARE=[*SESSIONS, "django_distlock.middleware.DistlockMiddleware"],
                SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
            )
        )
        self._open.enter_context(databases_left_alone())
        self._open.callback(django_distlock.locks.close_all)
        self._handler = WSGIHandler()
        context = self._open.enter_context(self.app.app_context())
        self._open.enter_context(closing(flask_locks))
        assert context is not None
        self._clients = {"django": django_distlock.locks["default"], "flask": flask_locks["default"]}
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _view(self, *_: object, **__: object) -> Any:
        with suppress(distlock.NotHeld):  # a rule does not lock what only reads
            self.held.append(distlock.current_grant().names)
        return self.work()

    def _urls(self) -> type:
        def view(request: HttpRequest, **arguments: str) -> HttpResponse:
            return HttpResponse(self._view())

        patterns = [
            path(route, django_distlock.distributed_lock(name)(_with_id(view, "<" in route)))
            for route, name in GUARDS.items()
        ]
        for number, route in enumerate(RULES):
            patterns.append(path(route, _with_id(view, "<" in route), name=f"rule{number}"))

        class Urls:
            urlpatterns = patterns

        return Urls

    def _in_flask(self) -> flask_distlock.DistLock:
        def view(**arguments: str) -> str:
            return str(self._view())

        app = self.app
        # Werkzeug answers two slashes with a redirection, and some bytes in it with 500, before any guard.
        app.url_map.merge_slashes = False
        app.config.from_mapping(DISTLOCK=self._settings, PROPAGATE_EXCEPTIONS=False)
        app.config["DISTLOCK_RULES"] = [
            {"route": f"rule{n}", "lock": lock} for n, lock in enumerate(RULES.values())
        ]
        locks = flask_distlock.DistLock(app, user=lambda: None)
        for number, (route, name) in enumerate(GUARDS.items()):
            guarded = flask_distlock.distributed_lock(name)(_with_id(view, "<" in route, request=False))
            app.add_url_rule(f"/{route}", f"guard{number}", guarded, methods=METHODS)
        for number, route in enumerate(RULES):
            bare = _with_id(view, "<" in route, request=False)
            app.add_url_rule(f"/{route}", f"rule{number}", bare, methods=METHODS)
        return locks

    def client(self, face: str) -> distlock.Locks:
        """Return the client whose locks the guards of *face* take."""
        return self._clients[face]

    def ask(self, face: str, sent: Sent) -> Answer:
        app: Any = self.app if face == "flask" else self._handler
        chunks, status, headers = run_wsgi_app(app, sent.environ(), buffered=True)
        return Answer(int(status.split()[0]), dict(headers), b"".join(chunks).decode())

    def nothing_is_held(self) -> bool:
        """Return whether no guard has left a lock, a waiter or a queue behind."""
        return all(
            not engine_of(client).queues.by_key and not engine_of(client).queues.waiting
            for client in self._clients.values()
        )


def _with_id(view: Callable[..., Any], has_id: bool, request: bool = True) -> Callable[..., Any]:
    """Return *view* with the arguments that its route gives it: guards look at names of arguments."""
    if request:
        return (lambda request, id: view(request)) if has_id else (lambda request: view(request))
    return (lambda id: view()) if has_id else (lambda: view())
