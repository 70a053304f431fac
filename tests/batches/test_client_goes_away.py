"""A client that goes away while its request is in a batch is no reason to fail anybody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework.response import Response
from rest_framework.views import APIView

from django_distlock import distributed_lock
from tests.batches.django_line import DjangoLine
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.redis_server import eventually

pytestmark = on("postgresql")


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The line's shop over HTTP, a thread for each request."""
    inner = get_wsgi_application()

    def application(*arguments: Any) -> Any:
        try:
            return inner(*arguments)
        finally:
            connections.close_all()

    with make_server("127.0.0.1", 0, application, Server, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[0], server.server_port
        server.shutdown()
        thread.join()


def send(
    address: tuple[str, int], name: str, length: int = 0, head: str = "POST /product/1", kind: str = ""
) -> socket.socket:
    buyer = socket.create_connection(address, timeout=60)
    lines = f"{head}?{name} HTTP/1.0\r\nContent-Length: {length}\r\nContent-Type: {kind}\r\n\r\n"
    buyer.sendall(lines.encode())
    return buyer


def status(buyer: socket.socket) -> int:
    with buyer, buyer.makefile("rb") as answer:
        return int(answer.readline().split()[1])


@pytest.mark.attack("A22")
@pytest.mark.fault("F38")
@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_one_that_goes_away_in_line_is_sold_to_and_the_others_are_answered(
    line: DjangoLine, gone: str
) -> None:
    line.serve({})
    buyers: dict[str, socket.socket] = {}
    with served() as address:
        with line.standing():
            for there, name in enumerate("abc", 1):
                buyers[name] = send(address, name)
                line.wait_for(there)
            buyers.pop(gone).close()
        assert [status(buyer) for buyer in buyers.values()] == [200, 200]
        # It was promised to nobody, and was asked for: its order stands, as that of any view does.
        eventually(lambda: line.left() == STOCK - 3, "all are sold")


def test_one_whose_body_is_not_there_yet_stands_in_no_line(line: DjangoLine) -> None:
    line.serve({})
    with served() as address:
        with line.standing():
            slow = send(address, "slow", length=1000)
            other = send(address, "other")
            line.wait_for(1)
        assert status(other) == 200
        assert (line.done, line.left()) == (["other"], STOCK - 1)
        slow.close()


def test_an_upload_to_rest_framework_is_there_before_its_request_stands_in_line(line: DjangoLine) -> None:
    form = "multipart/form-data; boundary=x"
    photo = b'--x\r\nContent-Disposition: form-data; name="photo"\r\n\r\npppp\r\n--x--\r\n'

    class Photo(APIView):  # type: ignore[misc]  # REST framework has no types
        authentication_classes = permission_classes = ()

        @method_decorator(distributed_lock("product_<id>", fence=line.using, batch=32))
        def put(self, request: Any, id: int) -> Response:
            line.done.append(request.data.get("photo", ""))
            return Response()

    line.shop.urls.urlpatterns.append(path("photo/<int:id>", Photo.as_view()))
    with served() as address:
        with line.standing():
            slow = send(address, "slow", len(photo), "PUT /photo/1", form)
            other = send(address, "other", 0, "PUT /photo/1", form)
            line.wait_for(1)
        assert status(other) == 200
        slow.sendall(photo)
        assert status(slow) == 200
    assert line.done == ["", "pppp"]


@pytest.mark.parametrize(("length", "expected"), [(1000, 200), (1001, 413)])
def test_a_body_that_is_too_large_for_a_batch_is_refused(
    line: DjangoLine, settings: Any, length: int, expected: int
) -> None:
    settings.DISTLOCK_BATCH_MAX_BODY = 1000
    line.serve({})
    with served() as address:
        buyer = send(address, "large", length)
        if expected == 200:
            buyer.sendall(b"p" * length)
        assert status(buyer) == expected
    assert line.left() == STOCK - (expected == 200)
