"""A way to the server that loses what it is told to lose."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.redis_server import RedisServer


class Proxy:
    """Forwards every connection to *port*.

    `lose_reply` swallows one reply, and breaks its connection; `lose_request` a request, and `delay_request`
    keeps it until `deliver`. While `drips` is set, replies come byte by byte. `late` delays what passes, by
    as many seconds as it says each time. `hold` keeps back what passes in one direction. `fail_over` breaks
    all connections, and leads the next ones to another server.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        """*address*: the address that the server sees as that of all clients."""
        self._target, self._source = port, (address, 0)
        self._losing = threading.Event()
        self._pause = threading.Event()
        self._losing_request = threading.Event()
        self._delaying_request = threading.Event()
        self._delivering = threading.Event()
        #: Of each connection: whether replies, and whether requests pass.
        self._flowing: list[dict[bool, threading.Event]] = []
        #: The directions of new connections that are kept back: True for replies, False for requests.
        self._holding: frozenset[bool] = frozenset()
        self.lost = threading.Event()
        #: Seconds between two bytes.
        self.drips = 0.0
        self.late: Callable[[], float] = lambda: 0.0
        #: What `hold` has kept back so far.
        self.kept = b""
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._subscription = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._subscription.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def lose_reply(self) -> None:
        self.lost.clear()
        self._losing.set()

    def lose_request(self) -> None:
        self.lost.clear()
        self._losing_request.set()

    def delay_request(self) -> None:
        self.lost.clear()
        self._delaying_request.set()

    def deliver(self) -> None:
        self._delivering.set()

    def hold(self, replies: bool, new: bool = False) -> None:
        """Keep back the replies, or the requests, of the connections that there are, until `flow`.

        *new*: those of later connections, too.
        """
        self._holding = frozenset({replies} if new else ())
        for flowing in self._flowing:
            flowing[replies].clear()

    def cut_off(self, *replies: bool) -> None:
        """Keep back the replies (True), the requests (False), or both, of all connections until `flow`."""
        self._holding = frozenset(replies)
        for flowing in self._flowing:
            for direction in replies:
                flowing[direction].clear()

    def fail_over(self, port: int) -> None:
        """What was held back is lost."""
        self._target = port
        self._holding = frozenset()
        self._flowing = []
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def flow(self) -> None:
        self._holding = frozenset()
        for flowing in self._flowing:
            flowing[True].set()
            flowing[False].set()

    def close(self) -> None:
        self._closed = True
        self._pause.set()
        self.flow()
        self.deliver()
        for one in [self._subscription, *self._sockets]:
            # A thread that is blocked in it wakes up by shutdown only.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._subscription.accept()
                server = socket.create_connection(("127.0.0.1", self._target), source_address=self._source)
                self._sockets += [client, server]
                if self._closed:
                    self.close()
                self._flowing.append({True: threading.Event(), False: threading.Event()})
                for source, target, replies in ((client, server, False), (server, client, True)):
                    flowing = self._flowing[-1][replies]
                    if replies not in self._holding:
                        flowing.set()
                    one = (source, target, replies, flowing)
                    threading.Thread(target=self._forward, args=one, daemon=True).start()

    def _forward(
        self, source: socket.socket, target: socket.socket, replies: bool, flowing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if replies and self._losing.is_set():
                    self._losing.clear()
                    self.lost.set()
                    break
                if not replies and self._losing_request.is_set():
                    self._losing_request.clear()
                    self.lost.set()
                    break
                if not replies and self._delaying_request.is_set():
                    self._delaying_request.clear()
                    source.shutdown(socket.SHUT_RDWR)
                    self.lost.set()
                    self._delivering.wait()
                    target.sendall(data)
                    break
                if not flowing.is_set():
                    self.kept += data
                    flowing.wait()
                self._pause.wait(self.late())
                if replies and self.drips:
                    for byte in data:
                        self._pause.wait(self.drips)
                        target.sendall(bytes([byte]))
                else:
                    target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(redis_server.port)
    yield made
    made.close()
