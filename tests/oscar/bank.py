"""The bank of the shop: it confirms payments together, once no further one has come for a moment."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Seconds.
MOMENT = 0.1


class Bank:
    """Counts payments by basket. Serves them while it is a context manager.

    A shop without locks lets many buyers pass its check of the stock. They meet here: each comes within a
    moment of another, so none is confirmed before the last one has come. Under a lock one comes at a time.
    """

    def __init__(self) -> None:
        self.payments: Counter[int] = Counter()
        #: How many were here at once.
        self.most = 0
        self._waiting = 0
        self._changed = threading.Condition()
        bank = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bank.pay(int(self.path.removeprefix("/")))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def pay(self, basket: int) -> None:
        with self._changed:
            self.payments[basket] += 1
            self._waiting += 1
            self.most = max(self.most, self._waiting)
            self._changed.notify_all()
            while self._changed.wait(MOMENT):
                pass  # Another one has come.
            self._waiting -= 1

    def __enter__(self) -> Bank:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
