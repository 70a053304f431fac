from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest


@dataclass(slots=True)
class Echo:
    """A server that sends back what it gets, and hangs up when it is hung up on. One client at a time."""

    port: int
    #: What it got.
    got: SimpleQueue[bytes] = field(default_factory=SimpleQueue)


@pytest.fixture
def echo() -> Iterator[Echo]:
    def serve() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 16):
                    server.got.put(data)
                    connection.sendall(data)

    listener = socket.create_server(("127.0.0.1", 0))
    server = Echo(listener.getsockname()[1])
    thread = threading.Thread(target=serve)
    thread.start()
    yield server
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
