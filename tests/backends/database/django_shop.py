"""A Django shop whose lock is a row of its own database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from distlock import Locks

inside, go_on = threading.Event(), threading.Event()


def database_setting(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:]}
    if parts.scheme == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{parts.scheme}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
        "OPTIONS": dict(parse_qsl(parts.query)),
    }


def buy(request: HttpRequest, id: int) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
        (stock,) = cursor.fetchone()
        if stock < 1:
            return HttpResponse("sold out", status=409)
        time.sleep(0.002)
        with transaction.atomic():
            cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock - 1, id])
            cursor.execute("INSERT INTO sale (product) VALUES (%s)", [id])
    return HttpResponse("sold")


def hold(request: HttpRequest, id: int) -> HttpResponse:
    inside.set()
    assert go_on.wait(60)
    return buy(request, id)


def restock(id: int) -> None:
    from django_distlock import locks

    with locks.lock(f"product_{id}"), connection.cursor() as cursor:
        cursor.execute("SELECT stock FROM product WHERE id = %s", [id])
        (stock,) = cursor.fetchone()
        time.sleep(0.002)
        cursor.execute("UPDATE product SET stock = %s WHERE id = %s", [stock + 1, id])


def make(url: str, guard: str, timeout: float) -> Any:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": database_setting(url)},
        DISTLOCK={"default": {"BACKEND": "database", "TIMEOUT": timeout, "MAX_WAITERS": 16}},
        INSTALLED_APPS=["django_distlock"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="tests only",
    )
    django.setup()
    from django_distlock import distributed_lock

    lock = distributed_lock("product_<id>") if guard == "row" else lambda view: view
    global urlpatterns
    urlpatterns = [path("buy/<int:id>", lock(buy)), path("hold/<int:id>", lock(hold))]
    return get_wsgi_application()


@contextmanager
def client() -> Iterator[Locks]:
    from django_distlock import locks

    yield locks["default"]


def create_tables() -> None:
    call_command("migrate", "distlock", verbosity=0)
