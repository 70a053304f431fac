"""A network that is farther away: everything arrives, in order, and later."""

from __future__ import annotations

import socket
import time

from bench.network import farther
from tests.bench.conftest import Echo

DISTANCE = 0.02


def test_each_round_trip_takes_longer_and_loses_nothing(echo: Echo) -> None:
    with (
        farther("127.0.0.1", echo.port, DISTANCE) as port,
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
