"""A logged-in user's session, and what other requests of the session do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.file import SessionStore as FileStore
from django.core.cache import caches
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_distlock import distributed_lock
from django_distlock.signals import lock_released

View = Callable[[HttpRequest], HttpResponse]

EVERY_STORE = pytest.mark.parametrize("backend", ["db", "cached_db", "cache", "file"])


class Site:
    """One user, who is logged in, and what other requests of the session do."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.client = Client()
        self.user = User.objects.create_user("buyer", password="buyer")
        self.client.force_login(self.user)
        self.key = self.client.cookies[settings.SESSION_COOKIE_NAME].value
        self.others(vouchers=5, cart=["tea"], shelf={"top": {"tea": 1}})
        #: What the store had when a lock was released.
        self.at_release: list[dict[str, Any] | None] = []
        #: Called with the request before its lock is asked for, and after its release.
        self.before: Callable[[HttpRequest], object] = lambda request: None
        self.after: Callable[[HttpRequest], object] = lambda request: None

    def store(self, key: str | None = None) -> Any:
        return import_module(self.settings.SESSION_ENGINE).SessionStore(key or self.key)

    def stored(self) -> dict[str, Any] | None:
        """What is in the store; None: nothing. A cache in front of a table has the same."""
        store = self.store()
        content = dict(store.items())
        if self.settings.SESSION_ENGINE.endswith("cached_db"):
            caches["default"].delete(store.cache_key_prefix + self.key)
            assert dict(self.store().items()) == content
        return content if store.session_key else None

    def others(self, **content: object) -> None:
        """Another request of the session has saved *content*."""
        store = self.store()
        store.update(content)
        store.save()

    def serve(self, view: View, name: Any = "user_<user.pk>", **words: Any) -> None:
        guarded = distributed_lock(name, **words)(view)
        self.settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("spend", guarded)]})

    def post(self) -> Any:
        return self.client.post("/spend")

    def released(self, **kwargs: Any) -> None:
        self.at_release.append(dict(self.store().items()))


SITES: list[Site] = []


def around(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """The middleware between those of Django and the view."""

    def middleware(request: HttpRequest) -> HttpResponse:
        assert request.user.pk
        SITES[-1].before(request)
        response = get_response(request)
        SITES[-1].after(request)
        return response

    return middleware


@pytest.fixture
def backend() -> str:
    return "db"


@pytest.fixture
def atomic_requests_if(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """``ATOMIC_REQUESTS`` of the default database."""

    def set_it(atomic: bool) -> None:
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic)

    return set_it


@pytest.fixture
def site(
    settings: Any, transactional_db: None, backend: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django.contrib.sessions"]
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{backend}"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        f"{__name__}.around",
    ]
    settings.DISTLOCK = {"default": {"LOCATION": "memory://sessions"}}
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr(FileStore, "_storage_path", str(tmp_path), raising=False)
    from django.contrib.sessions.models import Session

    with connection.schema_editor() as editor:
        editor.create_model(Session)
    caches["default"].clear()
    made = Site(settings)
    SITES.append(made)
    lock_released.connect(made.released)
    yield made
    lock_released.disconnect(made.released)
    SITES.pop()
    caches["default"].clear()
    with connection.schema_editor() as editor:
        editor.delete_model(Session)


def spend(request: HttpRequest) -> HttpResponse:
    request.session["vouchers"] -= 1
    return HttpResponse("spent")


def look(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(request.session["vouchers"]))


def guard_twice(site: Site) -> None:
    """From its second guard on, a process knows what a session has loaded."""
    site.serve(look)
    site.post()
    site.at_release.clear()
