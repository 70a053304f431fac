"""A Django project on one database, sold out through its real handlers, once for each cell.

Run as ``python -m tests.transactions.django_site URL ISOLATION ARRANGEMENT:GUARD …``; prints a line of JSON
for each cell. ISOLATION is ``default`` or a level such as ``serializable``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import django
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.signals import got_request_exception
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.decorators import method_decorator, sync_and_async_middleware

from tests.transactions.arrangement import OURS, Arrangement
from tests.transactions.till import (
    COMMIT_TAKES,
    STOCK,
    Answer,
    Outcome,
    ask_asgi,
    ask_wsgi,
    on_sale,
    sell_by_tasks,
    sell_by_threads,
    told_fence,
)

READ_FIRST = f"{__name__}.read_first"
MEMORY = {"default": {"LOCATION": "memory://matrix", "TIMEOUT": 60}}
SERVICES = {
    "batch": {"default": {"LOCATION": "memory://matrix", "FENCE": True, "TIMEOUT": 60}},
    "fence": {"default": {"BACKEND": "dummy", "FENCE": True, "TIMEOUT": 60}},
    "row": {"default": {"BACKEND": "database", "TIMEOUT": 60}},
}


def databases(url: str, isolation: str) -> dict[str, Any]:
    """``default`` at *url*, and ``other`` beside it."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        engine: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"timeout": 60}}
        names = (parts.path[1:], f"{parts.path[1:]}.other")
    else:
        scheme = parts.scheme
        engine = {"ENGINE": f"django.db.backends.{scheme}", "HOST": "127.0.0.1", "PORT": parts.port}
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        engine |= {"USER": "shop", "CONN_MAX_AGE": None, "OPTIONS": options}
        names = ("shop", "shop_other")
        if scheme == "mysql":
            import pymysql

            pymysql.install_as_MySQLdb()
        if isolation != "default":
            options["isolation_level"] = level(scheme, isolation)
    return {"default": engine | {"NAME": names[0]}, "other": engine | {"NAME": names[1]}}


def level(scheme: str, isolation: str) -> object:
    if scheme == "mysql":
        return isolation
    from psycopg import IsolationLevel

    return IsolationLevel[isolation.replace(" ", "_").upper()]


def configure(url: str, isolation: str) -> None:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES=databases(url, isolation),
        DISTLOCK=MEMORY,
        INSTALLED_APPS=["django_distlock"],
        MIDDLEWARE=[READ_FIRST],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
        SECRET_KEY="tests only",
        # Refusals are counted here, hundreds of them.
        LOGGING_CONFIG=None,
    )
    logging.disable()
    django.setup()


@sync_and_async_middleware
def read_first(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Reads what the view is about to read, as a session or a login would."""

    def read() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT stock FROM product")
            cursor.fetchall()

    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            await sync_to_async(read)()
            return await get_response(request)

    else:

        def middleware(request: Any) -> Any:
            read()
            return get_response(request)

    return middleware


def take_long_to_commit() -> None:
    commit = BaseDatabaseWrapper.commit
    from tests.transactions.django_arrangements import BOOK

    def slowly(self: BaseDatabaseWrapper) -> None:
        time.sleep(COMMIT_TAKES)
        commit(self)
        BOOK.committed()

    BaseDatabaseWrapper.commit = slowly


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The control: the same lock, let go when the decorator returns."""
    from django_distlock import locks

    if isinstance(function, type):
        return method_decorator(plain, name="dispatch")(function)
    lock = functools.partial(locks.lock, "product_1", in_transaction=True)
    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            async with lock() as grant:
                told_fence.set(tuple(grant.fence))
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with lock() as grant:
                told_fence.set(tuple(grant.fence))
                return function(*args, **kwargs)

    return wrapper


def batch_of(guard: str) -> dict[str, Any]:
    return {"batch": 32} if guard == "batch" else {}


def guard_of(arrangement: Arrangement, guard: str) -> Callable[..., Any]:
    from django_distlock import distributed_lock

    if guard == "plain":
        return plain
    if guard == "nothing" or arrangement.rule:
        return lambda view: view
    return distributed_lock("product_<int:id>", **batch_of(guard))


def settings_of(arrangement: Arrangement, guard: str) -> dict[str, Any]:
    changed: dict[str, Any] = {"DISTLOCK": SERVICES.get(guard, MEMORY)}
    if arrangement.middleware:
        changed["MIDDLEWARE"] = ["django_distlock.middleware.DistlockMiddleware", READ_FIRST]
    if arrangement.rule and guard in OURS:
        changed["DISTLOCK_RULES"] = [{"route": "buy", "lock": "product_<id>", **batch_of(guard)}]
    return changed


def run(arrangement: Arrangement, guard: str) -> Outcome:
    """Sell out under *guard*."""
    from django.test import override_settings
    from django.urls import path

    from tests.transactions.django_arrangements import BOOK

    class Urls:
        urlpatterns = [
            path("product/<int:id>/buy", arrangement.make(guard_of(arrangement, guard)), name="buy")
        ]

    refusals: list[str] = []

    def refused(**kwargs: Any) -> None:
        if type(error := sys.exc_info()[1]).__name__ == "ConfigurationError":
            refusals.append(str(error))

    for alias, database in connections.settings.items():
        database["ATOMIC_REQUESTS"] = arrangement.atomic and (alias == "default" or arrangement.both)
    stock_up()
    BOOK.sales.clear()
    got_request_exception.connect(refused)
    with override_settings(ROOT_URLCONF=Urls, **settings_of(arrangement, guard)):
        answers = (sell_under_asgi if arrangement.asgi else sell_under_wsgi)(arrangement)
    got_request_exception.disconnect(refused)
    sold, left = count()
    return Outcome(sold, left, answers, BOOK.complaints(guard), refusals[0] if refusals else "")


def sell_under_wsgi(arrangement: Arrangement) -> dict[str, int]:
    application = get_wsgi_application()

    def post() -> Answer:
        if arrangement.trouble:
            ask_wsgi(application, "trouble")
        return ask_wsgi(application)

    return sell_by_threads(post, connections.close_all)


def sell_under_asgi(arrangement: Arrangement) -> dict[str, int]:
    application = get_asgi_application()

    async def post() -> Answer:
        if arrangement.trouble:
            loop, gone = asyncio.get_running_loop(), asyncio.Event()
            token = on_sale.set(lambda: loop.call_soon_threadsafe(gone.set))
            await ask_asgi(application, "trouble", gone)
            on_sale.reset(token)
        return await ask_asgi(application)

    return sell_by_tasks(post)


def make_tables() -> None:
    create = "CREATE DATABASE shop_other"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = 'shop_other'")
            if not cursor.fetchone():
                cursor.execute(create)
        elif connection.vendor == "mysql":
            cursor.execute(create.replace("DATABASE", "DATABASE IF NOT EXISTS"))
    for alias in connections:
        with connections[alias].cursor() as cursor:
            for table in ("product", "sale", "distlock_fence", "django_migrations"):
                cursor.execute(f"DROP TABLE IF EXISTS {table}")
            cursor.execute("CREATE TABLE product (id int PRIMARY KEY, stock int NOT NULL)")
            cursor.execute("CREATE TABLE sale (product int NOT NULL)")
            cursor.execute("INSERT INTO product VALUES (1, 0)")
        call_command("migrate", verbosity=0, database=alias)


def stock_up() -> None:
    for alias in connections:
        with connections[alias].cursor() as cursor:
            cursor.execute("UPDATE product SET stock = %s", [STOCK])
            cursor.execute("DELETE FROM sale")


def count() -> tuple[int, int]:
    sold = 0
    for alias in connections:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM sale")
            sold += cursor.fetchone()[0]
    with connection.cursor() as cursor:
        cursor.execute("SELECT stock FROM product")
        return sold, cursor.fetchone()[0]


def main() -> None:
    url, isolation, *cells = sys.argv[1:]
    configure(url, isolation)
    from tests.transactions.django_arrangements import DJANGO

    make_tables()
    take_long_to_commit()
    for cell in cells:
        name, _, guard = cell.partition(":")
        print(run(DJANGO[name], guard).dump(), flush=True)


if __name__ == "__main__":
    main()
