"""A site whose view spends vouchers of a session, asked by sixteen requests with one cookie at once.

Run as ``python -m tests.django_distlock.fresh.session_site DATABASE REDIS BACKEND VIEW:GUARD …``; prints a
line of JSON for each cell. Each request has loaded its session before the first of them takes the lock.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from wsgiref.util import setup_testing_defaults

import django
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import clear_url_caches, path
from django.utils.decorators import sync_and_async_middleware

from tests.transactions.django_site import databases

REQUESTS = 16
VOUCHERS = 5
NAME = "user_<user.pk>"

#: All have loaded their session when they meet there.
threads = threading.Barrier(REQUESTS)
tasks: asyncio.Barrier

#: What a guard is told, beside its name.
GUARDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "atomic": {},
    "fence": {"fence": True},
    "batch": {"fence": True, "batch": 32},
    "row": {},
    "off": {},
    "shared": {"mode": "shared", "methods": ["POST"]},
}


def configure(database: str, redis: str, backend: str) -> None:
    url = urlsplit(database)
    options = databases(database, "default")
    options = {
        alias: {**one, "NAME": url.path[1:]} if alias == "default" else one for alias, one in options.items()
    }
    settings.configure(
        ALLOWED_HOSTS=["*"],
        # An error ends the thread of its request, which prints it.
        DEBUG_PROPAGATE_EXCEPTIONS=True,
        DATABASES={"default": options["default"]},
        CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis}},
        SESSION_ENGINE=f"django.contrib.sessions.backends.{backend}",
        SESSION_FILE_PATH=tempfile.mkdtemp(),
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": backend, "TIMEOUT": 60}},
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            "django_distlock",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            f"{__name__}.meet",
        ],
        ROOT_URLCONF=__name__,
        SECRET_KEY="tests only",
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    logging.disable()
    django.setup()


@sync_and_async_middleware
def meet(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Each request waits here for the others, with its user and its session loaded."""
    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            await request.auser()
            await tasks.wait()
            return await get_response(request)

    else:

        def middleware(request: Any) -> Any:
            assert request.user.pk
            threads.wait(200)
            return get_response(request)

    return middleware


def spend(request: HttpRequest) -> HttpResponse:
    left = request.session["vouchers"]
    if left < 1:
        return HttpResponse(status=409)
    request.session["vouchers"] = left - 1
    return HttpResponse("spent")


def count(request: HttpRequest) -> HttpResponse:
    """Counts what it refuses."""
    request.session["vouchers"] -= 1
    raise PermissionDenied


def report(request: HttpRequest) -> HttpResponse:
    """Leaves a mark that no other request leaves, while the other readers are inside, too."""
    threads.wait(200)
    request.session[uuid4().hex] = "mark"
    return HttpResponse("reported")


async def aspend(request: HttpRequest) -> HttpResponse:
    left = await request.session.aget("vouchers")
    if left < 1:
        return HttpResponse(status=409)
    await request.session.aset("vouchers", left - 1)
    return HttpResponse("spent")


async def acount(request: HttpRequest) -> HttpResponse:
    await request.session.aset("vouchers", await request.session.aget("vouchers") - 1)
    raise PermissionDenied


VIEWS = {"spend": spend, "count": count, "report": report, "aspend": aspend, "acount": acount}
urlpatterns: list[Any] = []


def post(application: Any, cookie: str) -> str:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/spend",
        "HTTP_COOKIE": f"sessionid={cookie}",
    }
    setup_testing_defaults(environ)
    statuses: list[str] = []
    try:
        response = application(environ, lambda status, headers, error=None: statuses.append(status[:3]))
        response.close()
    finally:
        connections.close_all()
    return statuses[0]


async def apost(application: Any, cookie: str) -> str:
    statuses: list[str] = []
    gone = asyncio.Event()
    messages = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if not messages:
            await gone.wait()
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(str(message["status"]))

    await application(
        {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/spend",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"cookie", f"sessionid={cookie}".encode())],
        },
        receive,
        send,
    )
    return statuses[0]


def by_threads(application: Any, cookie: str) -> Counter[str]:
    answers: Counter[str] = Counter()
    running = [
        threading.Thread(target=lambda: answers.update([post(application, cookie)])) for _ in range(REQUESTS)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return answers


def by_tasks(application: Any, cookie: str) -> Counter[str]:
    async def together() -> list[str]:
        global tasks
        tasks = asyncio.Barrier(REQUESTS)
        return await asyncio.gather(*(apost(application, cookie) for _ in range(REQUESTS)))

    return Counter(asyncio.run(together()))


def run(view: str, guard: str) -> dict[str, Any]:
    from django.contrib.auth.models import User

    from django_distlock import distributed_lock
    from tests.django_distlock.fresh.logins import session_of

    if guard == "row":
        override_settings(DISTLOCK={"default": {"BACKEND": "database", "TIMEOUT": 60}}).enable()
    override_settings(DISTLOCK_REFRESH_SESSION=guard != "off").enable()
    words = GUARDS[guard]
    connections.settings["default"]["ATOMIC_REQUESTS"] = guard in {"atomic", "batch", "row"}
    urlpatterns[:] = [path("spend", distributed_lock(NAME, **words)(VIEWS[view]))]
    clear_url_caches()
    user, _ = User.objects.get_or_create(username="buyer")
    session = session_of(user, vouchers=100 if "count" in view else VOUCHERS)
    key = session.session_key
    if iscoroutinefunction(VIEWS[view]):
        answers = by_tasks(get_asgi_application(), key)
    else:
        answers = by_threads(get_wsgi_application(), key)
    stored = type(session)(key)
    return {"answers": answers, "left": stored["vouchers"], "marks": [*stored.values()].count("mark")}


def main() -> None:
    database, redis, backend, *cells = sys.argv[1:]
    configure(database, redis, backend)
    connection.close()
    call_command("migrate", verbosity=0)
    for cell in cells:
        view, _, guard = cell.partition(":")
        print(json.dumps(run(view, guard)), flush=True)


if __name__ == "__main__":
    main()
