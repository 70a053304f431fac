"""The addresses of a host. A resolver takes no deadline, so it is given a thread, and left to it."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from distlock import clock

Addresses = list[tuple[int, Any]]


class Resolver:
    """For one host and port. One look-up at a time, however many wait for it. Belongs to one process."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._mutex = threading.Lock()
        self._looking: Future[Addresses] | None = None

    def resolve(self, deadline: float) -> Addresses:
        """Families and addresses to connect to. Raises OSError, TimeoutError after *deadline*."""
        try:
            return self._look_up(socket.AI_NUMERICHOST)
        except OSError:
            pass  # It is a name.
        with self._mutex:
            looking = self._looking
            if looking is None:
                looking = Future()
                threading.Thread(
                    target=self._answer, args=(looking,), name="distlock-resolver", daemon=True
                ).start()
                self._looking = looking
        try:
            return looking.result(max(0.0, deadline - clock.now()))
        except FutureTimeoutError:
            raise TimeoutError("its name was not resolved in time") from None

    def _answer(self, looking: Future[Addresses]) -> None:
        try:
            found = self._look_up(0)
        except Exception as error:
            failure: Exception | None = error
        else:
            failure = None
        with self._mutex:
            self._looking = None
        if failure is None:
            looking.set_result(found)
        else:
            looking.set_exception(failure)

    def _look_up(self, flags: int) -> Addresses:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=flags)
        return [(family, address) for family, _, _, _, address in found]
