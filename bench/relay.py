"""A network in which things go wrong when they are told to: pushes come late, connections die."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

#: What a client says that is told by its server what others do.
SUBSCRIBES = b"SUBSCRIBE"


class Relay:
    """Leads to the server of *url*; `url` is the way through it. Opened and closed by ``with``."""

    def __init__(self, url: str) -> None:
        server = urlsplit(url)
        assert server.hostname
        assert server.port
        self._target = server.hostname, server.port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = server._replace(netloc=f"127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        #: So much later comes what is told to subscribers, seconds.
        self.late = 0.0
        #: The next connection that sends what this finds dies; None: none does.
        self.fatal: re.Pattern[bytes] | None = None
        #: Whether the server still gets what it died of.
        self.delivers = True
        #: How often either has happened.
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
        """All connections die."""
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
                    # Before it can be answered.
                    hang_up(client)
                if self.delivers or not dies:
                    server.sendall(data)
                if dies:
                    break
        hang_up(client)
        # What was sent before is still carried out.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _takes(self, data: bytes) -> bool:
        """Whether a connection dies of *data*. Only one does."""
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
