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


def send(address: tuple[str, int], name: str, length: int = 0) -> socket.socket:
    buyer = socket.create_connection(address, timeout=60)
    buyer.sendall(f"POST /product/1?{name} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode())
    return buyer


def status(buyer: socket.socket) -> int:
    with buyer, buyer.makefile("rb") as answer:
        return int(answer.readline().split()[1])


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
