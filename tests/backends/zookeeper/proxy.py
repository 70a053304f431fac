"""A way to the server that loses what it is told to lose."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.zookeeper_server import CHROOT, ZooKeeperServer


class Proxy:
    """Forwards every connection to *port*.

    `lose_reply` swallows one reply, `lose_request` one request of a kind; both break its connection.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._losing = threading.Event()
        self._garbling = threading.Event()
        self._garbled = 0
        self._unwanted: int | None = None
        #: Connections that were frozen: they stay open, and nothing gets through.
        self._frozen: set[socket.socket] = set()
        self._apart = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()
        self.lost = threading.Event()
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}{CHROOT}"

    def lose_reply(self) -> None:
        self.lost.clear()
        self._losing.set()

    def garble_reply(self, length: bool = False) -> None:
        """The next reply answers what was not asked, as if two shared a session; or its *length* is wrong."""
        self.lost.clear()
        self._garbled = 0 if length else 4
        self._garbling.set()

    def lose_request(self, kind: int) -> None:
        """*kind*: the number that the protocol has for it."""
        self.lost.clear()
        self._unwanted = kind

    def freeze(self) -> None:
        """Let the connections that there are hang; new ones are served."""
        self._frozen |= set(self._sockets)

    def hold(self) -> None:
        """Keep all replies back, until `flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def part(self) -> None:
        """Break all connections and take no new ones, until `join`."""
        self._apart.set()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self._apart.clear()

    def close(self) -> None:
        self._closed = True
        self.flow()
        for one in [self._listener, *self._sockets]:
            # A thread that is blocked in it wakes up by shutdown only.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._apart.is_set():
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                if self._closed:
                    self.close()
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if replies and self._losing.is_set():
                    self._losing.clear()
                    self.lost.set()
                    break
                if replies and self._garbling.is_set():
                    self._garbling.clear()
                    self.lost.set()
                    # A reply begins with its length and the number of its request.
                    at = self._garbled
                    data = data[:at] + (0x7FFFFFF0 if at else 2).to_bytes(4) + data[at + 4 :]
                if not replies and self._unwanted in kinds_of(data):
                    self._unwanted = None
                    self.lost.set()
                    break
                if replies:
                    self._flowing.wait()
                if source not in self._frozen:
                    target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def kinds_of(data: bytes) -> Iterator[int]:
    """The kinds of the requests in *data*: each begins with its length, its own number and its kind."""
    while data:
        yield int.from_bytes(data[8:12])
        data = data[4 + int.from_bytes(data[:4]) :]


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[Proxy]:
    made = Proxy(zookeeper_server.port)
    yield made
    made.close()
