"""``scripts/demo up``: open the shop of a scenario for a browser, and serve its ``/sale``."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

from demo_shop.guards import DISTRIBUTED
from loadtest.live_sale import LiveSale, state
from loadtest.scenario import BUY, QUART, BuyerCrowd, Scenario, Visit
from loadtest.stack import Stack

INVITATION = """
{slug}: {title}
{instances}, behind nginx

  The shop:    {url}/
               Choose what keeps buyers apart, and send 50 of them.
  More buyers: .venv/bin/locust -f loadtest/locustfile.py \\
                 --host {url} --web-host 127.0.0.1 \\
                 --users {users} --spawn-rate {users} --purchases {purchases}{visit}
               Then open http://127.0.0.1:8089/ and press Start.
               With --headless it needs no page.

Enter fills the shelf again. Ctrl-C closes the shop.{locked}
"""
CONTINUED = " \\\n                 "


def invitation(
    scenario: Scenario, visit: Visit, instances: Sequence[str], url: str, crowd: BuyerCrowd
) -> str:
    pair = "mixed" if scenario.slug.startswith("mixed") else "two"
    up = "--async up" if scenario.is_async else "up"
    framework = scenario.instances[0]
    chosen = f" --framework {framework}" if framework in ("flask", QUART) else ""
    locked = f"\nWith the distributed lock: scripts/demo {up} {pair}-{DISTRIBUTED}{chosen}"
    return INVITATION.format(
        slug=scenario.slug,
        title=scenario.title,
        instances=" and ".join(instances),
        url=url,
        users=crowd.users,
        purchases=crowd.purchases,
        locked="" if scenario.guard == DISTRIBUTED else locked,
        visit="" if visit.slug == BUY else f"{CONTINUED}--visit {visit.slug} --products {visit.products}",
    )


def keep_open(scenario: Scenario, visit: Visit, stack: Stack, crowd: BuyerCrowd) -> NoReturn:
    """Print the shop's address, then each change of its stock, until Ctrl-C. Enter fills the shelf again."""
    print(invitation(scenario, visit, stack.names, stack.url, crowd), flush=True)
    if has_desktop():
        webbrowser.open(f"{stack.url}/")
    initial, told = stack.shop.stock * visit.products, (-1, -1)
    while True:
        ledger = stack.ledger()
        seen = ledger.sold, ledger.stock
        if seen != told:
            excess = f"  OVERSOLD by {seen[0] - initial}" if seen[0] > initial else ""
            print(f"sold {seen[0]} of {initial}, stock {seen[1]}{excess}", flush=True)
            told = seen
        if asked_to_restock(0.5):
            with stack.shelf:
                stack.restock()


def has_desktop() -> bool:
    """Return whether a browser would have a window. Without one it could take over the terminal."""
    desktop = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    return bool(desktop) and sys.stdout.isatty()


def asked_to_restock(patience: float) -> bool:
    """Return whether Enter was pressed within *patience* seconds. Without a keyboard, only wait."""
    if not sys.stdin.isatty():
        time.sleep(patience)
        return False
    return bool(select.select([sys.stdin], [], [], patience)[0]) and bool(sys.stdin.readline())


PATH, STANDS_STILL = "/sale", "stands-still"


@contextmanager
def serve_sales(stack: Stack) -> Iterator[int]:
    """Serve `PATH`, and yield the port. ``GET`` returns the state of the sale.

    ``POST /sale/<choice>`` begins a sale, and with ``?stands-still`` stops one process in it. This server is
    not part of the shop, whose instances are busy with the buyers: nginx passes the page's requests to it.
    """
    live = LiveSale(stack)

    class SaleHandler(BaseHTTPRequestHandler):
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
            """Write nothing: the terminal shows what is sold, and no requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), SaleHandler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="sale server", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            live.close()
