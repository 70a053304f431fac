"""Every place where a guard may stand on a Django view, and what was seen to happen there."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.signals import got_request_exception
from django.db import connections
from django.db.backends.signals import connection_created
from django.http import HttpResponse
from django.test import Client

from distlock.grants.current import current_grant, current_grants
from django_distlock.signals import lock_acquired, lock_released
from tests.django_distlock.event_loop import soon


class Events(list[str]):
    """What happened in one request: ``names``, ``lock``, ``BEGIN``, ``view``, ``COMMIT``, ``release``."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def name(self, request: Any, id: int) -> str:
        """The callable that every guard of the table has for a name, beside a template."""
        self.append("names")
        return f"product_{id}"

    def view(self) -> None:
        locked = current_grants() and set(current_grant().names) == {"product_1", "shelf_1"}
        self.append("view" if locked else "view without lock")

    def sell(self) -> HttpResponse:
        """The body of every view of the table."""
        self.view()
        return HttpResponse("sold")

    async def asell(self) -> HttpResponse:
        return self.sell()


@contextmanager
def watched(events: Events) -> Iterator[Events]:
    """Locks are seen by signals, transactions by what SQLite executes, on the connections of all threads."""

    def locked(**kwargs: Any) -> None:
        events.append("lock")

    def released(**kwargs: Any) -> None:
        events.append("release")

    def executed(statement: str) -> None:
        if (word := statement.split()[0]) in {"BEGIN", "COMMIT", "ROLLBACK"}:
            events.append(word)

    def connected(connection: Any, **kwargs: Any) -> None:
        connection.connection.set_trace_callback(executed)

    def failed(**kwargs: Any) -> None:
        events.error = sys.exc_info()[1]

    connections.close_all()
    lock_acquired.connect(locked)
    lock_released.connect(released)
    connection_created.connect(connected)
    got_request_exception.connect(failed)
    try:
        yield events
    finally:
        lock_acquired.disconnect(locked)
        lock_released.disconnect(released)
        connection_created.disconnect(connected)
        got_request_exception.disconnect(failed)
        connections.close_all()


def by_wsgi(method: str, path: str) -> int:
    return Client(raise_request_exception=False).generic(method, path).status_code


def by_asgi(method: str, path: str) -> int:
    return asyncio.run(asgi(method, path))


async def asgi(method: str, path: str, disconnected: asyncio.Event | None = None, user: str = "") -> int:
    """The status that Django's ASGI handler answers. *disconnected*: when the client goes."""
    application: Callable[..., Any] = get_asgi_application()
    statuses: list[int] = []
    never = asyncio.Event()
    asked = False
    path, _, query = path.partition("?")

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b""}
        await (disconnected or never).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"host", b"testserver"), (b"x-user", user.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
        "http_version": "1.1",
    }
    await application(scope, receive, send)
    return statuses[0] if statuses else 0


def leaving(path: str, begun: threading.Event, go: threading.Event) -> int:
    """The status for a client that posts to *path* and goes when *begun* is set.

    *go* is set a hundred rounds of the loop later: the cancellation has come to all that awaits by then.
    """

    async def leave() -> int:
        gone = asyncio.Event()
        asked = asyncio.create_task(asgi("POST", path, gone))
        await soon(begun.is_set)
        gone.set()
        for _ in range(100):
            await asyncio.sleep(0)
        go.set()
        return await asyncio.wait_for(asked, 30)

    return asyncio.run(leave())
