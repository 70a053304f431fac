"""A client that sends its body slowly holds up nobody else: its body is read before its lock is taken."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from flask import Flask
from flask import request as flask_request
from rest_framework.response import Response
from rest_framework.views import APIView

import distlock
import django_distlock
import flask_distlock
from distlock.errors import ConfigurationError
from distlock.testing.waits import engine_of
from tests.redis_server import eventually

FORM = "multipart/form-data; boundary=x"
PHOTO = (
    b'--x\r\nContent-Disposition: form-data; name="photo"; filename="p"\r\n\r\n'
    + b"p" * 5000
    + b"\r\n--x--\r\n"
)
SETTINGS: dict[str, Any] = {"LOCATION": "memory://slow-body", "MAX_WAITERS": 1}
#: By site: what gives the client of its guards.
clients: dict[Callable[..., Any], Callable[[], distlock.Locks]] = {}
locked = django_distlock.distributed_lock("product_<id>", timeout=0)
patient = django_distlock.distributed_lock("product_<id>", timeout=30)


def plain(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(len(request.body)))


def as_stream(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(sum(map(len, iter(lambda: request.read(100), b"")))))


def form(request: HttpRequest, id: int) -> HttpResponse:
    photo = request.FILES.get("photo")
    return HttpResponse(str(len(photo.read()) if photo else 0))


async def in_task(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(len(request.body)))


class Rest(APIView):  # type: ignore[misc]  # REST framework has no types
    authentication_classes = permission_classes = ()

    @method_decorator(locked)
    def put(self, request: Any, id: int) -> Response:
        photo = request.data.get("photo", "")
        return Response(len(photo if isinstance(photo, str) else photo.read()))


class Urls:
    urlpatterns = (
        path("plain/<int:id>", locked(plain)),
        path("stream/<int:id>", locked(as_stream)),
        path("form/<int:id>", locked(form)),
        path("task/<int:id>", locked(in_task)),
        path("rest/<int:id>", Rest.as_view()),
        path("patient/<int:id>", patient(plain)),
    )


def django_site(settings: Any, **words: object) -> Callable[..., Iterable[bytes]]:
    settings.ROOT_URLCONF, settings.DISTLOCK = Urls, {"default": SETTINGS}
    for name, value in words.items():
        setattr(settings, name, value)
    clients[django_site] = lambda: django_distlock.locks["default"]
    return get_wsgi_application()


def flask_site(settings: Any, **words: object) -> Callable[..., Iterable[bytes]]:
    app = Flask(__name__)
    app.config.update(DISTLOCK={"default": SETTINGS}, **words)
    locks = flask_distlock.DistLock(app)

    def client() -> distlock.Locks:
        with app.app_context():
            return locks["default"]

    clients[flask_site] = client
    locked = flask_distlock.distributed_lock("product_<id>", timeout=0)

    @app.post("/plain/<int:id>")
    @locked
    def plain(id: int) -> str:
        return str(len(flask_request.get_data()))

    @app.post("/form/<int:id>")
    @locked
    def form(id: int) -> str:
        photo = flask_request.files.get("photo")
        return str(len(photo.read()) if photo else 0)

    @app.post("/patient/<int:id>")
    @flask_distlock.distributed_lock("product_<id>", timeout=30)
    def patient(id: int) -> str:
        return str(len(flask_request.get_data()))

    return app.wsgi_app


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


class Noting:
    """The stream of a body, which says when somebody waits for more of it."""

    def __init__(self, inner: Any, reading: threading.Event) -> None:
        self._inner = inner
        self._reading = reading

    def read(self, *size: int) -> bytes:
        self._reading.set()
        return bytes(self._inner.read(*size))

    def readline(self, *size: int) -> bytes:
        self._reading.set()
        return bytes(self._inner.readline(*size))


class Served:
    """A site over HTTP, at *address*. *reading* is set when the body of a request to ``?slow`` is read."""

    def __init__(self, address: tuple[str, int], reading: threading.Event) -> None:
        self.reading = reading
        self.clients: list[socket.socket] = []
        self._address = address

    def send(self, line: str, body: bytes = b"", kind: str = "text/plain") -> socket.socket:
        """Send the head of a request, and the first byte of its body."""
        client = socket.create_connection(self._address, timeout=60)
        self.clients.append(client)
        head = f"{line} HTTP/1.0\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body[:1])
        return client

    def ask(self, line: str, kind: str = "text/plain") -> int:
        """Return the status of a whole request without a body."""
        return answer(self.send(line, kind=kind))[0]


def answer(client: socket.socket, rest: bytes = b"") -> tuple[int, str]:
    """Send the *rest* of a body. Returns status and text of the answer."""
    with client.makefile("rb") as reply:
        client.sendall(rest)
        status = int(reply.readline().split()[1])
        return status, reply.read().rpartition(b"\r\n\r\n")[2].decode()


@contextmanager
def served(site: Callable[..., Iterable[bytes]]) -> Iterator[Served]:
    """The site over HTTP, a thread for each request."""
    reading = threading.Event()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["QUERY_STRING"] == "slow":
            environ["wsgi.input"] = Noting(environ["wsgi.input"], reading)
        return site(environ, start_response)

    with make_server("127.0.0.1", 0, application, Server, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        here = Served((str(server.server_address[0]), server.server_port), reading)
        try:
            yield here
        finally:
            # Also where a test has failed: the server waits for who reads what they still have to send.
            for client in here.clients:
                client.close()
            server.shutdown()
            thread.join()


KINDS = [
    (django_site, "POST /plain", b"p" * 5000, "text/plain"),
    (django_site, "POST /stream", b"p" * 5000, "text/plain"),
    (django_site, "POST /task", b"p" * 5000, "text/plain"),
    (django_site, "POST /form", PHOTO, FORM),
    (django_site, "PUT /rest", json.dumps({"photo": "p" * 5000}).encode(), "application/json"),
    (django_site, "PUT /rest", PHOTO, FORM),
    (flask_site, "POST /plain", b"p" * 5000, "text/plain"),
    (flask_site, "POST /form", PHOTO, FORM),
]
IDS = [f"{site.__name__}-{line}-{kind.partition(';')[0]}" for site, line, _, kind in KINDS]


@pytest.mark.attack("A24")
@pytest.mark.fault("F39")
@pytest.mark.parametrize(("site", "line", "body", "kind"), KINDS, ids=IDS)
def test_the_others_are_served_while_a_client_sends_its_body(
    settings: Any, site: Callable[..., Any], line: str, body: bytes, kind: str
) -> None:
    with served(site(settings)) as shop:
        slow = shop.send(f"{line}/1?slow", body, kind)
        assert shop.reading.wait(30)
        assert [shop.ask(f"{line}/1", kind) for _ in range(3)] == [200, 200, 200]
        assert answer(slow, body[1:]) == (200, "5000")


@pytest.mark.attack("A24", control=True)
@pytest.mark.parametrize(("site", "line", "body", "kind"), KINDS, ids=IDS)
@pytest.mark.parametrize("limit", [0, 4999])
def test_a_body_over_the_limit_is_read_under_the_lock(
    settings: Any, site: Callable[..., Any], line: str, body: bytes, kind: str, limit: int
) -> None:
    with served(site(settings, DISTLOCK_BODY_BEFORE_LOCK=limit)) as shop:
        slow = shop.send(f"{line}/1?slow", body, kind)
        assert shop.reading.wait(30)
        assert shop.ask(f"{line}/1", kind) == 423
        assert answer(slow, body[1:]) == (200, "5000")


@pytest.mark.attack("A24")
@pytest.mark.parametrize("site", [django_site, flask_site])
def test_who_would_be_refused_is_refused_before_its_body_is_there(
    settings: Any, site: Callable[..., Any]
) -> None:
    with served(site(settings)) as shop:
        with distlock.connect(SETTINGS["LOCATION"]).lock("product_1"):
            waiting = shop.send("POST /patient/1")
            eventually(lambda: engine_of(clients[site]()).queues.waiting == 1, "one waits")
            assert answer(shop.send("POST /patient/1?slow", b"p" * 5000))[0] == 503
            assert not shop.reading.is_set()
        assert answer(waiting)[0] == 200


def test_asgi_has_read_the_body_before_the_lock(settings: Any) -> None:
    django_site(settings)
    application = get_asgi_application()

    def asked(line: str, body: int) -> ApplicationCommunicator:
        return ApplicationCommunicator(
            application,
            {
                "type": "http",
                "http_version": "1.1",
                "method": "POST",
                "path": line,
                "raw_path": line.encode(),
                "query_string": b"",
                "headers": [(b"content-length", str(body).encode()), (b"host", b"localhost")],
            },
        )

    async def scenario() -> list[int]:
        slow, other = asked("/task/1", 5000), asked("/task/1", 0)
        await slow.send_input({"type": "http.request", "body": b"p", "more_body": True})
        assert await slow.receive_nothing()
        await other.send_input({"type": "http.request", "body": b""})
        statuses = [(await other.receive_output(30))["status"]]
        await slow.send_input({"type": "http.request", "body": b"p" * 4999})
        statuses.append((await slow.receive_output(30))["status"])
        for one in (slow, other):
            await one.receive_output(30)
            await one.wait(30)
        return statuses

    assert asyncio.run(scenario()) == [200, 200]


@pytest.mark.parametrize("value", [-1, True, "2.5 MB", None, 1.5])
def test_a_limit_is_a_number_of_bytes(value: object) -> None:
    name = "DISTLOCK_BODY_BEFORE_LOCK"
    app = Flask(__name__)
    app.config.update({"DISTLOCK": "memory://sizes", name: value})
    with pytest.raises(ConfigurationError, match=f"{name} is {value!r}. It is a number of bytes"):
        flask_distlock.DistLock(app).check(app)
