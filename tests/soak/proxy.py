"""A proxy between the workers and the lock service, which cuts and swallows what passes through it."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Direction = Literal["requests", "replies"]
#: close() sends RST with this option, and not FIN.
_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Connection:
    """Two sockets, and what is done to the bytes between them."""

    client: socket.socket
    server: socket.socket
    #: After so many more bytes in a direction the connection is cut.
    left: dict[str, int] = field(default_factory=dict)
    #: The directions whose bytes are thrown away, while both ends believe that they are connected.
    swallows: set[str] = field(default_factory=set)
    resets: bool = False

    def cut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                if self.resets:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                else:
                    end.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                end.close()

    def carry(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        """Pass on what *source* sends until it ends or the connection is cut."""
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                if (left := self.left.get(direction)) is not None:
                    chunk, self.left[direction] = chunk[:left], left - len(chunk)
                if chunk and direction not in self.swallows:
                    target.sendall(chunk)
                if self.left.get(direction, 1) <= 0:
                    break
        self.cut()


class Proxy:
    """Passes each connection to *url* on. It is a context manager, which cuts all of them at its end."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname or "127.0.0.1", parts.port or 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        login, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()
        self._connections: list[_Connection] = []
        self._mutex = threading.Lock()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._open():
            connection.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(None)
            connection = _Connection(client, server)
            with self._mutex:
                self._connections.append(connection)
            for ways in ((client, server, "requests"), (server, client, "replies")):
                threading.Thread(target=self._carry, args=(connection, *ways), daemon=True).start()

    def _carry(
        self, connection: _Connection, source: socket.socket, target: socket.socket, direction: Direction
    ) -> None:
        connection.carry(source, target, direction)
        with self._mutex, suppress(ValueError):
            self._connections.remove(connection)

    def _open(self) -> list[_Connection]:
        with self._mutex:
            return list(self._connections)

    def cut_one(self, choices: random.Random) -> None:
        """Cut a connection at a random byte of a random direction, with RST or FIN."""
        if found := self._open():
            connection = choices.choice(found)
            connection.resets = choices.random() < 0.5
            connection.left[choices.choice(("requests", "replies"))] = choices.choice((0, 1, 7, 40, 300))

    def cut_all(self, choices: random.Random) -> None:
        """Cut all connections, as when a switch forgets them."""
        for connection in self._open():
            connection.resets = choices.random() < 0.5
            connection.cut()

    def swallow(self, choices: random.Random) -> None:
        """Throw away what passes through some connections in one direction. Nobody gets a FIN."""
        direction = choices.choice(("requests", "replies"))
        for connection in self._open():
            if choices.random() < 0.5:
                connection.swallows.add(direction)
