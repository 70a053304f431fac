"""The addresses of a host. A resolver takes no deadline."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

from distlock.backends.redis.aside import Aside

Addresses = list[tuple[int, Any]]


class Resolver:
    """For one host and port. Belongs to one process."""

    def __init__(self, host: str, port: int) -> None:
        self._look_up = partial(_look_up, host, port)
        self._aside: Aside[Addresses] = Aside(self._look_up, "distlock-resolver")

    def resolve(self, deadline: float) -> Addresses:
        """Families and addresses to connect to. Raises OSError, TimeoutError after *deadline*."""
        try:
            return self._look_up(socket.AI_NUMERICHOST)
        except OSError:
            pass  # It is a name.
        return self._aside.answer(deadline, "its name was not resolved in time")


def _look_up(host: str, port: int, flags: int = 0) -> Addresses:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]
