"""What a guard compares does not turn a transaction that only writes into one that reads first, on SQLite.

Such a transaction fails at once, whatever time-out is set, where another connection has written since.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SITE = """
import sqlite3, sys, tempfile
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

database, what, batch = sys.argv[1:]
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": database,
            "ATOMIC_REQUESTS": True,
            "OPTIONS": {"timeout": 60},
        }
    },
    DISTLOCK={"default": {"LOCATION": "memory://first"}},
    INSTALLED_APPS=[f"django.contrib.{name}" for name in ("contenttypes", "auth", "sessions")],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ROOT_URLCONF="__main__",
    SECRET_KEY="tests only",
    USE_TZ=True,
)
django.setup()
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django_distlock import distributed_lock

call_command("migrate", verbosity=0)
connection.cursor().execute("PRAGMA journal_mode = wal")
other = sqlite3.connect(database)

name = {"user": "user_<user.pk>", "session": lambda request: f"session_{request.session.session_key}"}[what]


@distributed_lock(name, batch=int(batch) or None)
def view(request):
    # Another request writes and commits, between BEGIN and the first statement of this one.
    with other:
        other.execute("INSERT INTO auth_group (name) VALUES ('theirs')")
    Group.objects.create(name="ours")
    request.session["seen"] = True
    return HttpResponse(f"{request.user.first_name}")


urlpatterns = [path("", view)]


def change(get_response):
    def middleware(request):
        request.user.pk, request.session.get("seen")
        # Another request has changed what this one has read, when it gets the lock.
        with other:
            other.execute("UPDATE auth_user SET first_name = 'new', is_active = ?", [not request.GET])
        return get_response(request)

    return middleware


settings.MIDDLEWARE += ["__main__.change"]
client = Client()
client.force_login(User.objects.create_user("alice", first_name="old"))
answer = client.get("/")
assert (answer.status_code, answer.content) == (200, b"new"), answer.content
assert set(Group.objects.values_list("name", flat=True)) == {"ours", "theirs"}
assert client.session["seen"]
answer = client.get("/?refuse")
assert answer.status_code == 403, answer.content
assert Group.objects.count() == 2
"""


@pytest.mark.parametrize("batch", [0, 8])
@pytest.mark.parametrize("what", ["user", "session"])
def test_a_view_that_only_writes_waits_for_other_writers(tmp_path: Path, what: str, batch: int) -> None:
    command = [sys.executable, "-c", SITE, str(tmp_path / "site.sqlite3"), what, str(batch)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
