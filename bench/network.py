"""Proxies between client and server: one adds distance, and one delays pushes and kills connections."""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from bench.crew import process_context

#: A connection that has sent this command receives pushes.
SUBSCRIBES = b"SUBSCRIBE"


@contextmanager
def farther(host: str, port: int, seconds: float) -> Iterator[int]:
    """Yield a port of the loopback that leads to *host* and *port*, with *seconds* more round-trip time."""
    here, there = socket.socketpair()
    with here, there, socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        relay = process_context().Process(
            target=relay_with_delay, args=(listener, (host, port), seconds / 2, there), daemon=True
        )
        relay.start()
        try:
            yield listener.getsockname()[1]
        finally:
            here.close()
            relay.join()


def relay_with_delay(
    listener: socket.socket, target: tuple[str, int], delay: float, bench: socket.socket
) -> None:
    """Pass data on *delay* seconds later, until *bench* hangs up, which also happens if the run is killed.

    One thread is enough: the delay is the same for all data, so data is due in the order in which it came.
    This uses ``select``, whose timeout is exact to microseconds: epoll's milliseconds are as long as the
    delay.
    """
    other: dict[socket.socket, socket.socket] = {}
    under_way: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        ready, _, _ = select.select([bench, listener, *other], [], [], wait)
        if bench in ready:
            return
        now = time.monotonic()
        for one in ready:
            if one is listener:
                near, far = listener.accept()[0], socket.create_connection(target)
                other[near], other[far] = far, near
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                continue
            try:
                data = one.recv(1 << 16)
            except OSError:
                data = b""
            under_way.append((now + delay, other[one], data))
            if not data:
                # The other direction may still have data.
                del other[one]
        while under_way and under_way[0][0] <= time.monotonic():
            _, to, data = under_way.popleft()
            with suppress(OSError):
                if data:
                    to.sendall(data)
                else:
                    to.shutdown(socket.SHUT_WR)


class Relay:
    """A proxy for the server of *url* that delays pushes and kills connections. Clients connect to its `url`.

    It is a context manager.
    """

    def __init__(self, url: str) -> None:
        server = urlsplit(url)
        assert server.hostname
        assert server.port
        self._target = server.hostname, server.port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = server._replace(netloc=f"127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        #: By how many seconds data for subscribers is delayed.
        self.late = 0.0
        #: The next connection whose data matches this is killed, once. None: no connection is killed.
        self.fatal: re.Pattern[bytes] | None = None
        #: Whether the server still receives the matching data.
        self.delivers = True
        #: How often data was delayed, and how many connections were killed.
        self.delayed = self.died = 0
        self._mutex = threading.Lock()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hang_up(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def cut(self) -> None:
        """Kill all connections."""
        with self._mutex:
            for end in self._ends:
                hang_up(end)

    def _start(self, task: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=task, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._mutex:
                self._ends += [client, server]
            subscribed = threading.Event()
            self._start(self._ask, client, server, subscribed)
            self._start(self._answer, server, client, subscribed)

    def _ask(self, client: socket.socket, server: socket.socket, subscribed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if SUBSCRIBES in data:
                    subscribed.set()
                dies = self._takes(data)
                if dies:
                    # The client must not receive a reply.
                    hang_up(client)
                if self.delivers or not dies:
                    server.sendall(data)
                if dies:
                    break
        hang_up(client)
        # The server still carries out the requests that were sent before.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _takes(self, data: bytes) -> bool:
        """Return whether to kill the connection because of *data*. That happens to one connection only."""
        with self._mutex:
            if self.fatal is None or not self.fatal.search(data):
                return False
            self.fatal = None
            self.died += 1
            return True

    def _answer(self, server: socket.socket, client: socket.socket, subscribed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if subscribed.is_set() and self.late:
                    self.delayed += 1
                    time.sleep(self.late)
                client.sendall(data)
        hang_up(client)


def hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
