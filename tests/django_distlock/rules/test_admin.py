"""A rule locks what the site did not write itself: a change page of the admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import path

from django_distlock import locks
from tests.django_distlock.conftest import rule


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [False, True])
def test_the_change_page_of_the_admin_takes_the_lock(
    atomic: bool, rules: Callable[..., Client], settings: Any, request: pytest.FixtureRequest
) -> None:
    if atomic:
        request.getfixturevalue("atomic_requests")
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django.contrib.admin", "django.contrib.messages"]
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    seen: list[tuple[bool, bool]] = []

    class Users(admin.ModelAdmin):
        fields = ("email",)

        def save_model(self, request: Any, user: User, form: Any, change: bool) -> None:
            super().save_model(request, user, form, change)
            seen.append((locks.lock(f"user_{user.pk}").locked(), connection.in_atomic_block))

        def log_change(self, *args: Any, **kwargs: Any) -> None:
            """The table of the log is not there."""

    site = admin.AdminSite()
    site.register(User, Users)
    client = rules(
        [path("admin/", site.urls)], rule(route="admin:auth_user_change", lock="user_<int:object_id>")
    )
    user = User.objects.create_superuser("ann")
    client.force_login(user)
    url = f"/admin/auth/user/{user.pk}/change/"

    with locks.lock(f"user_{user.pk}"):
        assert client.post(url, {"email": "ann@example.org"}).status_code == 423
    assert client.post(url, {"email": "ann@example.org"}).status_code == 302
    assert seen == [(True, True)]
    assert client.post(f"/admin/auth/user/0{user.pk}/change/").status_code == 400
