"""A payment gateway that counts how many are inside at once, and refuses those above its limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from demo_shop.gateway import LIMIT

#: How long a payment takes, seconds.
PAYMENT = 0.02


class Gateway:
    """What it has seen since `begin`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.url = ""
        self.begin()

    def begin(self) -> None:
        self.most = self.taken = self.refused = 0

    def pay(self) -> bool:
        """Whether there was room; if so the payment is done."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            room = self._inside <= LIMIT
        if room:
            # Nobody sets it: a payment takes its time.
            threading.Event().wait(PAYMENT)
        # Out before it is told, so that who takes its place is never counted beside it.
        with self._lock:
            self._inside -= 1
            self.taken += room
            self.refused += not room
        return room


@contextmanager
def open_gateway() -> Iterator[Gateway]:
    gateway = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200 if gateway.pay() else 429)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The verdict tells what was refused."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        #: All who come at once are to be counted, and not to wait before the door.
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        gateway.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="gateway", daemon=True)
        thread.start()
        try:
            yield gateway
        finally:
            server.shutdown()
            thread.join()
