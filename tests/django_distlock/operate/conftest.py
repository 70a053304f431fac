"""A site with Django's admin; its locks are in memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from django_distlock import locks

ADMIN = [
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]


@pytest.fixture
def site(settings: Any, transactional_db: None) -> Iterator[None]:
    settings.INSTALLED_APPS = [*ADMIN, *settings.INSTALLED_APPS]
    settings.STATIC_URL = "/static/"
    # Static files are looked for in these apps, too.
    settings.STATICFILES_DIRS = []
    # No table of theirs is needed.
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    context = [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": context},
        }
    ]
    settings.ROOT_URLCONF = "tests.django_distlock.operate.urls"
    settings.DISTLOCK = {
        "default": {"LOCATION": f"memory://{secrets.token_hex(4)}"},
        "rows": {"BACKEND": "database"},
    }
    from django.contrib.admin.models import LogEntry

    with connection.schema_editor() as editor:
        editor.create_model(LogEntry)
    yield
    locks.close_all()
    with connection.schema_editor() as editor:
        editor.delete_model(LogEntry)


@pytest.fixture
def served(site: None) -> Iterator[str]:
    """The site's address. pytest-django's own live server is one for all tests, and has no middleware."""
    server = LiveServer("127.0.0.1")
    yield server.url
    server.stop()


@pytest.fixture
def log_in(site: None) -> Callable[..., Client]:
    """`log_in("view_lock")`: the HTTP client of somebody of the staff with these permissions."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create_user("ann", is_staff=True)
        for permission in permissions:
            user.user_permissions.add(
                Permission.objects.get(codename=permission, content_type__app_label="distlock")
            )
        client = Client()
        client.force_login(user)
        return client

    return log_in
