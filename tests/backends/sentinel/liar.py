"""A sentinel that says what it is told to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Liar:
    """It calls the server at *port* the primary, since the failover *epoch*."""

    def __init__(self, port: int, epoch: int = 0) -> None:
        self._sockets: list[socket.socket] = []
        self.is_heard = False
        self.say(port, epoch)
        self._subscription = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._subscription.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def say(self, port: int, epoch: int, flags: str = "master", former: int | None = None) -> None:
        """*former*: of which its other words are."""
        about = {"ip": "127.0.0.1", "port": str(former or port), "flags": flags, "config-epoch": str(epoch)}
        told = [word for pair in about.items() for word in pair]
        self._answer = f"{_list(['127.0.0.1', str(port)])}{_list(told)}".encode()

    def fail(self) -> None:
        """It closes each connection on which it is asked."""
        self._answer = b""

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._subscription.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        # A client may be gone before it has heard what it asked for.
        with connection, suppress(OSError):
            while asked := connection.recv(65536):
                if b"SETNAME" in asked:
                    connection.sendall(b"+OK\r\n")
                elif b"MASTER" in asked:
                    if not self._answer:
                        return
                    connection.sendall(self._answer)
                else:
                    # It takes the subscription, and never says anything.
                    self.is_heard = True
                    connection.sendall(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n")

    def close(self) -> None:
        for one in (self._subscription, *self._sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It is closed.
        self._subscription.close()


def _list(words: list[str]) -> str:
    return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
