"""One server process of a shop: ``python -m tests.backends.database.instance FRAMEWORK URL GUARD TIMEOUT``.

It does what it reads, a word on each line, and answers each with a line of JSON.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import threading
from collections import Counter
from typing import Any

from werkzeug.test import create_environ, run_wsgi_app

import distlock
from distlock.operate import break_lock
from distlock.web.operate.pages import break_hold

THREADS = 8
PURCHASES = 8


class Instance:
    def __init__(self, framework: str, url: str, guard: str, timeout: str) -> None:
        self.shop: Any = importlib.import_module(f"tests.backends.database.{framework}_shop")
        self.application = self.shop.make(url, guard, float(timeout))
        self.held: threading.Thread | None = None
        self.status = 0
        self.over, self.broken = threading.Event(), 0

    def post(self, path: str) -> int:
        """Through the real handler, as a server calls it."""
        environ = create_environ(path, method="POST", errors_stream=io.StringIO())
        _, status, _ = run_wsgi_app(self.application, environ, buffered=True)
        return int(status.split()[0])

    def tables(self) -> None:
        self.shop.create_tables()

    def sell(self) -> Counter[int]:
        start, answers = threading.Barrier(THREADS), list[int]()

        def shop() -> None:
            start.wait()
            answers.extend(self.post("/buy/1") for _ in range(PURCHASES))

        threads = [threading.Thread(target=shop) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Counter(answers)

    def slowly(self) -> str:
        """Purchases of this process take so long that somebody can look at them."""
        self.shop.pause = 0.015
        return "slowly"

    def buy(self) -> int:
        return self.post("/buy/1")

    def restock(self) -> None:
        for _ in range(20):
            self.shop.restock(1)

    def hold(self) -> None:
        """Begin a purchase, and stay inside."""

        def enter() -> None:
            self.status = self.post("/hold/1")

        self.held = threading.Thread(target=enter)
        self.held.start()
        assert self.shop.inside.wait(30)

    def look(self) -> Any:
        """What is to be seen of the lock, or why there is nothing."""
        with self.shop.client() as client:
            try:
                self.seen = seen = client.inspect("product_1")
                listed = sorted((one.name, one.held) for one in client.list("product_"))
            except distlock.ConfigurationError as error:
                return str(error)
        since = [party.since for party in (seen.holder, *seen.queue) if party is not None]
        return {
            "holder": str(seen.holder or ""),
            "fence": seen.fence,
            "hold": seen.hold,
            "queue": [str(party) for party in seen.queue],
            "since": since,
            "listed": listed,
        }

    def break_it(self) -> bool:
        """Break what was seen."""
        with self.shop.client() as client:
            return break_lock(client.namespace, self.seen, by="ann")

    def press(self) -> bool:
        """Press the button of a page that another process may have shown: the next line names the hold."""
        with self.shop.client() as client:
            return (
                break_hold(lambda: client, "product_1", json.loads(sys.stdin.readline()), "ann") is not None
            )

    def hammer(self) -> str:
        """Break what is held, again and again."""

        def strike() -> None:
            with self.shop.client() as client:
                while not self.over.wait(0.002):
                    self.broken += break_lock(client.namespace, client.inspect("product_1"), by="ann")

        self.hammering = threading.Thread(target=strike)
        self.hammering.start()
        return "at it"

    def rest(self) -> int:
        """How many it has broken."""
        self.over.set()
        self.hammering.join()
        return self.broken

    def finish(self) -> int:
        assert self.held is not None
        self.shop.go_on.set()
        self.held.join()
        return self.status


def main() -> None:
    instance = Instance(*sys.argv[1:])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(instance, line.strip())()), flush=True)


if __name__ == "__main__":
    main()
