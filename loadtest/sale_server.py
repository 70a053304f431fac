"""``/sale`` of a shop that is open for a browser: send buyers, and tell how it goes.

It is no part of the shop, whose instances are busy with the buyers: nginx sends what the page asks to it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loadtest.live_sale import LiveSale
from loadtest.live_words import state
from loadtest.stack import Stack

PATH, STANDS_STILL = "/sale", "stands-still"


@contextmanager
def serve_sales(stack: Stack) -> Iterator[int]:
    """The port at which `PATH` answers. ``GET`` tells; ``POST /sale/<choice>`` begins a sale.

    ``POST /sale/<choice>?stands-still``: one process stands still in it.
    """
    live = LiveSale(stack)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == PATH:
                self.answer(200, state(live))
            else:
                self.answer(404, {"title": f"There is only {PATH}"})

        def do_POST(self) -> None:
            path, _, wish = self.path.partition("?")
            slug, stands_still = path.removeprefix(f"{PATH}/"), wish == STANDS_STILL
            if slug not in live.choices:
                self.answer(404, {"title": f"There is no such guard. There are: {', '.join(live.choices)}"})
            elif stands_still and not live.standstill.offered:
                self.answer(404, {"title": "Nothing can stand still here: scripts/demo up --backend redis"})
            elif live.begin(slug, stands_still):
                self.answer(202, state(live))
            else:
                self.answer(409, {"title": "A sale is under way. Wait for its end"})

        def answer(self, status: int, said: dict[str, object]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The terminal tells what is sold, not what is asked."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="sale server", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            live.close()
