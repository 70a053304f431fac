"""A proxy between the workers and the lock service, which cuts, swallows and delays what passes."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

Direction = Literal["requests", "replies"]
DIRECTIONS: tuple[Direction, Direction] = ("requests", "replies")
#: After so many more bytes a connection is cut: before the next message, in its head, or in its body.
BYTES = (0, 1, 7, 40, 300)
#: How many of the first bytes of a server are kept.
GREETING = 64
#: For how many seconds a cut waits for these bytes.
SOON = 0.5
#: close() sends RST with this option, and not FIN.
_RESET = struct.pack("ii", 1, 0)
#: For how many seconds the proxy waits for the lock service, which may be away.
_CONNECTING = 10.0


@dataclass(eq=False)
class _Connection:
    """Two sockets, and what is done to the bytes between them."""

    client: socket.socket
    server: socket.socket
    #: It is clear while the proxy holds back all bytes.
    flows: threading.Event
    #: After so many more bytes in a direction the connection is cut.
    left: dict[str, int] = field(default_factory=dict)
    #: The directions whose bytes are thrown away, while both ends believe that they are connected.
    swallows: set[str] = field(default_factory=set)
    resets: bool = False
    #: The first bytes that the server has sent.
    greeting: bytes = b""
    over: threading.Event = field(default_factory=threading.Event)

    def cut(self) -> None:
        self.over.set()
        for end in (self.client, self.server):
            with suppress(OSError):
                if self.resets:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # A thread that waits in recv() keeps the connection open beyond close().
                end.shutdown(socket.SHUT_RD if self.resets else socket.SHUT_RDWR)
            with suppress(OSError):
                end.close()

    def carry(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        """Pass on what *source* sends until it ends or the connection is cut."""
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                self.flows.wait()
                if direction == "replies" and not self.greeting:
                    self.greeting = chunk[:GREETING]
                if (left := self.left.get(direction)) is not None:
                    chunk, self.left[direction] = chunk[:left], left - len(chunk)
                if chunk and direction not in self.swallows:
                    target.sendall(chunk)
                if self.left.get(direction, 1) <= 0:
                    break
        self.cut()


class Proxy:
    """Passes each connection to the hosts of *url* on. It is a context manager, which cuts all at its end."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        #: The address behind each listener.
        self._targets: dict[socket.socket, tuple[str, int]] = {}
        for target in hosts.split(","):
            host, _, port = target.partition(":")
            self._targets[socket.create_server(("127.0.0.1", 0), backlog=200)] = host, int(port)
        own = ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in self._targets)
        self.url = parts._replace(netloc=f"{login}{at}{own}").geturl()
        self._connections: set[_Connection] = set()
        self._mutex = threading.Lock()
        self._flows, self._refuses = threading.Event(), False
        self._flows.set()

    def __enter__(self) -> Proxy:
        for listener, target in self._targets.items():
            threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._refuses = True
        self._flows.set()
        for listener in self._targets:
            with suppress(OSError):
                # This wakes accept(), which close() does not.
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._cut(self._open(), resets=False)

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client, target), daemon=True).start()

    def _connect(self, client: socket.socket, target: tuple[str, int]) -> None:
        try:
            if self._refuses:
                raise ConnectionRefusedError
            server = socket.create_connection(target, timeout=_CONNECTING)
        except OSError:
            # The lock service is away. With RST, the client finds it as if nobody listened.
            with suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        for end in (client, server):
            with suppress(OSError):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(None)
        connection = _Connection(client, server, self._flows)
        with self._mutex:
            self._connections.add(connection)
        if self._refuses:
            connection.cut()
        replies = threading.Thread(
            target=connection.carry, args=(server, client, "replies"), name="replies", daemon=True
        )
        replies.start()
        connection.carry(client, server, "requests")
        replies.join()
        with self._mutex:
            self._connections.discard(connection)

    def _open(self) -> list[_Connection]:
        with self._mutex:
            return list(self._connections)

    def _cut(self, connections: list[_Connection], resets: bool) -> None:
        for connection in connections:
            connection.resets = resets
            connection.cut()

    def greetings(self) -> list[bytes]:
        """Return what the lock service said first on each open connection."""
        return [connection.greeting for connection in self._open()]

    def cut_one(self, choices: random.Random, direction: Direction, resets: bool) -> int | None:
        """Cut a connection at a random byte of *direction*, by RST or FIN. Return whose it was, if known."""
        struck = None
        if found := self._open():
            connection = choices.choice(found)
            struck = owner_of(connection.client)
            connection.resets = resets
            connection.left[direction] = choices.choice(BYTES)
            # Cut an idle one, too, so that the run knows when it happened.
            connection.over.wait(SOON)
            connection.cut()
        return struck

    def cut_all(self, resets: bool) -> None:
        """Cut all connections, as when a switch forgets them."""
        self._cut(self._open(), resets)

    def refuse(self, seconds: float) -> None:
        """Cut all connections, and let nobody connect for *seconds*."""
        self._refuses = True
        try:
            self.cut_all(resets=True)
            threading.Event().wait(seconds)
        finally:
            self._refuses = False

    def delay(self, seconds: float) -> None:
        """Hold back all bytes for *seconds*, and deliver them then."""
        self._flows.clear()
        try:
            threading.Event().wait(seconds)
        finally:
            self._flows.set()

    def swallow(self, choices: random.Random, direction: Direction, seconds: float) -> None:
        """Throw away what passes through some connections in *direction*, and cut them after *seconds*.

        Until then, nobody gets a FIN.
        """
        found = self._open()
        struck = choices.sample(found, -(-len(found) // 2))
        for connection in struck:
            connection.swallows.add(direction)
        threading.Event().wait(seconds)
        self._cut(struck, resets=choices.random() < 0.5)


def owner_of(connection: socket.socket) -> int | None:
    """Return the process at the other end of *connection*, on this machine. None: unknown, or several."""
    try:
        port, own = connection.getpeername()[1], connection.getsockname()[1]
    except OSError:
        return None  # It has ended.
    ends = f":{port:04X}", f":{own:04X}"
    lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    sockets = {f"socket:[{line[9]}]" for line in lines if (line[1][-5:], line[2][-5:]) == ends}
    owners = {
        process for process in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(process, sockets)
    }
    # A forked child has the connections of its parent, too.
    return owners.pop() if len(owners) == 1 else None


def _has(process: int, files: set[str]) -> bool:
    """Return whether one of the descriptors of *process* is one of *files*."""
    directory = f"/proc/{process}/fd"
    with suppress(OSError):  # It ends just now, or is another user's.
        for descriptor in os.listdir(directory):
            with suppress(FileNotFoundError):
                if os.readlink(f"{directory}/{descriptor}") in files:
                    return True
    return False
