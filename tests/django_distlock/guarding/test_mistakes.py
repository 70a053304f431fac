"""Mistakes in the configuration, on a site with Django's own logging and DEBUG off: what its log says."""

from __future__ import annotations

import inspect
import traceback

import pytest
from django.http import HttpRequest, HttpResponse

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock
from tests.forked import errors_of

SITE = """
import asyncio, sys, types
import django
from django.conf import settings
from django.http import HttpResponse
from django.test import Client, AsyncClient
from django.urls import path
sys.modules["kazoo"] = None
settings.configure(
    DEBUG=False, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:shop?mode=memory"}},
    INSTALLED_APPS=[
        "django.contrib.contenttypes", "django.contrib.auth", "django_distlock"
    ],
    MIDDLEWARE=["django_distlock.middleware.DistlockMiddleware"],
    SETTINGS
)
django.setup()
from django_distlock import distributed_lock, locks

@distributed_lock("product_<int:id>")
def guard(request, id):
    return HttpResponse("sold")

def block(request, id):
    with locks.lock(f"product_{id}"):
        return HttpResponse("sold")

def twice(request, id):
    with locks.lock(f"product_{id}"), locks.lock(f"product_{id}"):
        return HttpResponse("sold")

def plain(request, id):
    return HttpResponse("sold")

@distributed_lock("product_<int:id>")
async def async_guard(request, id):
    return HttpResponse("sold")

async def async_block(request, id):
    async with locks.lock(f"product_{id}"):
        return HttpResponse("sold")

REST
urlpatterns = [path("<int:id>", VIEW, name="buy")]
for id in range(3):
    if ASYNC:
        answer = asyncio.run(AsyncClient(raise_request_exception=False).get(f"/{id}"))
    else:
        answer = Client(raise_request_exception=False).get(f"/{id}")
    assert answer.status_code == 500, answer
"""
#: A third of what such a process loads: where it is wanted only.
REST = """
from rest_framework.decorators import api_view
from rest_framework.response import Response

@distributed_lock("product_<int:id>")
@api_view(["GET"])
def rest(request, id):
    return Response("sold")
"""

NO_TABLE = (
    "The table distlock_fence, whose rows are the locks, is missing in the database. "
    "Run: python manage.py migrate distlock"
)
ZOOKEEPER = 'DISTLOCK="zookeeper://localhost:2181"'
RULES = 'DISTLOCK_RULES=[{"route": "buy", "methods": ["GET"], "lock": "product_<int:id>"}]'


def site_of(given: str, view: str, is_async: bool = False) -> str:
    site = SITE.replace("SETTINGS", given).replace("VIEW", view).replace("ASYNC", str(is_async))
    return site.replace("REST", REST if view == "rest" else "")


@pytest.mark.parametrize("is_async", [False, True], ids=["WSGI", "ASGI"])
@pytest.mark.parametrize(
    ("given", "view", "told"),
    [
        ("", "guard", "DISTLOCK is not configured"),
        ('DISTLOCK={"default": {"LOCATON": "memory://"}}', "guard", "LOCATON"),
        (ZOOKEEPER, "guard", "kazoo"),
        (ZOOKEEPER, "block", "kazoo"),
        (ZOOKEEPER, "async_guard", "kazoo"),
        (ZOOKEEPER, "async_block", "kazoo"),
        (ZOOKEEPER, "rest", "kazoo"),
        (f"{ZOOKEEPER}, {RULES}", "plain", "kazoo"),
        ('DISTLOCK={"default": {"BACKEND": "database"}}', "guard", NO_TABLE),
        ('DISTLOCK={"default": {"BACKEND": "database"}}', "block", NO_TABLE),
        ('DISTLOCK="memory://"', "twice", "leave the inner 'with' out"),
    ],
)
def test_a_mistake_that_requests_meet_is_one_line_of_the_log(
    given: str, view: str, told: str, is_async: bool
) -> None:
    site = site_of(given, view, is_async)
    said = errors_of("django", site)
    lines = [line for line in said.splitlines() if "can't be answered until this is mended" in line]
    assert len(lines) == 1, said
    assert told in lines[0]


ALONE = "outside of debug mode: each process has locks of its own"


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 0)])
@pytest.mark.parametrize("view", ["guard", "block", "async_guard"])
def test_memory_outside_of_debug_mode_is_told_by_the_log(view: str, debug: bool, lines: int) -> None:
    site = site_of('DISTLOCK="memory://"', view)
    site = site.replace("DEBUG=False", f"DEBUG={debug}").replace("== 500", "== 200")
    said = errors_of("django", site)
    assert said.count(ALONE) == lines, said


@pytest.mark.parametrize("names", [(), ("product_{id}",), ("product_<id",)])
def test_what_is_wrong_in_a_decorator_names_its_line(names: tuple[str, ...]) -> None:
    line = inspect.currentframe().f_lineno + 3  # type: ignore[union-attr]
    with pytest.raises(ConfigurationError) as told:

        @distributed_lock(*names)
        def buy(request: HttpRequest, id: int) -> HttpResponse: ...

    assert str(told.value).startswith(f"{__name__}, line {line}: ")
    # Its last line says all: no other traceback is above it.
    assert "another exception" not in "".join(traceback.format_exception(told.value))
