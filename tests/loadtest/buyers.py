"""The buyers of `loadtest.locustfile` as threads, which are there at once: for tests of the shop itself."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

from demo_shop.sale import Ledger
from loadtest.run import LONGEST_SALE
from loadtest.scenario import BuyerCrowd, Visit
from loadtest.stack import Front, Stack


def fill_cart(products: int) -> str:
    """Small ones are the most frequent: only they sell what is left of one product."""
    size = min(random.randint(1, products), random.randint(1, products))
    return json.dumps({"lines": [{"sku": sku} for sku in random.sample(range(1, products + 1), size)]})


def check_out(
    stack: Stack, front: Front, visit: Visit, crowd: BuyerCrowd, progress: Callable[[Ledger], None]
) -> dict[str, Any]:
    """In the place of `loadtest.run.load`, for carts: the same record."""
    rows: list[dict[str, Any]] = []
    together, numbers, began = threading.Barrier(crowd.users + 1), count(1), 0.0

    def shop() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)) as connection:
            # The instances connect to their database before the sale.
            connection.request("GET", "/products/1")
            connection.getresponse().read()
            together.wait()
            for _ in range(crowd.purchases):
                rows.append(purchase(connection, str(next(numbers))))  # noqa: PERF401  # others append, too

    def purchase(connection: http.client.HTTPConnection, number: str) -> dict[str, Any]:
        asked = time.time()
        sent = {"X-Purchase": number, "Content-Type": "application/json"}
        connection.request("POST", "/checkout", fill_cart(visit.products), sent)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        took = (time.time() - asked) * 1000
        told = {
            "code": said.get("code"),
            "order": said.get("order"),
            "instance": answer.headers["X-Instance"],
        }
        # Those that were turned away come later.
        time.sleep(min(float(answer.headers.get("Retry-After", 0)), 5.0))
        return {"purchase": number, "at": asked - began, "ms": took, "status": answer.status, **told}

    threads = [threading.Thread(target=shop, daemon=True) for _ in range(crowd.users)]
    for thread in threads:
        thread.start()
    together.wait()
    began, last = time.time(), time.monotonic() + LONGEST_SALE
    for thread in threads:
        thread.join(max(0.0, last - time.monotonic()))
    return {"began": began, "rows": rows, "ended": not any(thread.is_alive() for thread in threads)}
