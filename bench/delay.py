"""A network that is farther away: whatever passes through arrives half a round trip later, either way."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.crew import context


@contextmanager
def farther(host: str, port: int, seconds: float) -> Iterator[int]:
    """The port of the loopback that leads to *host* and *port*, *seconds* of round-trip time farther away."""
    here, there = socket.socketpair()
    with here, there, socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        relay = context().Process(target=run, args=(listener, (host, port), seconds / 2, there), daemon=True)
        relay.start()
        try:
            yield listener.getsockname()[1]
        finally:
            here.close()
            relay.join()


def run(listener: socket.socket, target: tuple[str, int], delay: float, bench: socket.socket) -> None:
    """Pass on what comes, *delay* seconds later, until *bench* hangs up, as it does when it is killed.

    One thread: the delay is the same for all, so what came first is due first. ``select`` is the only one of
    its kind that takes its time in microseconds; epoll's milliseconds are the whole delay.
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
                # Its other direction may have something left to say.
                del other[one]
        while under_way and under_way[0][0] <= time.monotonic():
            _, to, data = under_way.popleft()
            with suppress(OSError):
                if data:
                    to.sendall(data)
                else:
                    to.shutdown(socket.SHUT_WR)
