"""A network in which things go wrong when they are told to, and only then."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from bench.network import Relay
from tests.bench.conftest import Echo

LATE = 0.1


@pytest.fixture
def relay(echo: Echo) -> Iterator[Relay]:
    with Relay(f"redis://127.0.0.1:{echo.port}/0") as relay:
        yield relay


def client(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(relay.url).port or 0), timeout=30)


def test_what_is_told_to_subscribers_comes_late_and_nothing_else(relay: Relay) -> None:
    with closing(client(relay)) as one:
        one.sendall(b"SUBSCRIBE")
        assert one.recv(100) == b"SUBSCRIBE"
        relay.late = LATE
        began = time.monotonic()
        one.sendall(b"pushed")
        assert one.recv(100) == b"pushed"
        assert time.monotonic() - began >= LATE
    with closing(client(relay)) as one:
        one.sendall(b"asked")
        assert one.recv(100) == b"asked"
    assert relay.delayed == 1


@pytest.mark.parametrize("delivers", [True, False])
def test_one_connection_dies_of_what_it_sends(relay: Relay, echo: Echo, delivers: bool) -> None:
    relay.fatal, relay.delivers = re.compile(b"release"), delivers
    with closing(client(relay)) as one:
        one.sendall(b"request")
        assert one.recv(100) == b"request"
        one.sendall(b"release")
        assert one.recv(100) == b""
    # The next one lives, and the server has got what it got before.
    with closing(client(relay)) as one:
        one.sendall(b"release again")
        assert one.recv(100) == b"release again"
    got = b"".join(echo.got.get(timeout=30) for _ in range(3 if delivers else 2))
    assert got == (b"requestreleaserelease again" if delivers else b"requestrelease again")
    assert relay.died == 1


def test_all_connections_die_at_once(relay: Relay) -> None:
    with closing(client(relay)) as one:
        one.sendall(b"asked")
        assert one.recv(100) == b"asked"
        relay.cut()
        assert one.recv(100) == b""
