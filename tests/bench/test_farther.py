"""A network that is farther away: everything arrives, in order, and later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.delay import farther

DISTANCE = 0.02


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets, and hangs up when it is hung up on."""

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_each_round_trip_takes_longer_and_loses_nothing(echo: int) -> None:
    with (
        farther("127.0.0.1", echo, DISTANCE) as port,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.settimeout(30)
        for sent in (b"one", b"two" * 20_000):
            began = time.monotonic()
            client.sendall(sent)
            got = b""
            while len(got) < len(sent):
                got += client.recv(1 << 16)
            assert got == sent
            assert time.monotonic() - began >= DISTANCE
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
