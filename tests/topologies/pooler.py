"""A proxy as poolers are one: the client is told another session than the one that it is given."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

#: PostgreSQL: "K", the length, and then the server's process: what the server says of the session.
_KEY = b"K" + struct.pack(">i", 12)
#: MySQL: here the greeting has the version of the server, which a zero ends. The session's number is next.
_VERSION_AT = 5


def after_key(data: bytes) -> int | None:
    """Where PostgreSQL says which session it is, if it does in *data*."""
    return data.index(_KEY) + len(_KEY) if _KEY in data else None


def after_version(data: bytes) -> int | None:
    """The same of MySQL, for the first that comes."""
    return data.index(b"\0", _VERSION_AT) + 1


class Pooler:
    """Before the server at *url*. *find*: where in an answer four bytes say which session it is.

    *late*: a client whose session the server has ended is cut off only when it speaks next.
    """

    def __init__(self, url: str, find: Callable[[bytes], int | None], late: bool = False) -> None:
        self._find = find
        self._late = late
        self._ended: set[socket.socket] = set()
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = parts.port
        self._sockets: list[socket.socket] = []
        self._subscription = socket.create_server(("127.0.0.1", 0))
        port = self._subscription.getsockname()[1]
        self.url = url.replace(f":{parts.port}/", f":{port}/")
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in [self._subscription, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in [self._subscription, *self._sockets]:
            one.close()

    def _start(self, target: object, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._subscription.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                self._start(self._forward, client, server, False)
                self._start(self._forward, server, client, True)

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        is_server = answers
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if target in self._ended:
                    break
                if answers and (at := self._find(data)) is not None:
                    answers = False
                    data = data[:at] + struct.pack(">i", 7) + data[at + 4 :]
                target.sendall(data)
        if is_server and self._late:
            self._ended.add(source)
            return
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
