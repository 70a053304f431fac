"""A way to a server on which answers can be held back, as a slow network does."""

from __future__ import annotations

import contextlib
import socket
import threading


class Wire:
    """Forwards every connection to *port*. Requests always pass; answers wait while they are held."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._forwarding: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def hold(self) -> None:
        self._open.clear()

    def abandon(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.abandon()
        end(self._listener)
        self._accepting.join()
        # From here on there are no new ones.
        for one in self._sockets:
            end(one)
        for thread in self._forwarding:
            thread.join()
        for one in [self._listener, *self._sockets]:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                for way in ((client, server, False), (server, client, True)):
                    self._forwarding.append(threading.Thread(target=self._forward, args=way, daemon=True))
                    self._forwarding[-1].start()

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers:
                    self._open.wait()
                target.sendall(data)
        end(source)
        end(target)


def end(one: socket.socket) -> None:
    """A thread that is blocked in it wakes up by shutdown only."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
