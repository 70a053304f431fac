"""Fifty buyers who all start together and buy ten times each.

This also runs by itself, with Locust's web page, against a shop that `scripts/demo up` has opened. It imports
nothing of this project, because the `locust` command loads it by its path.
"""

from __future__ import annotations

import json
import logging
import random
import time
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent.event
from locust import FastHttpUser, constant, events, task
from locust.env import Environment
from locust.exception import StopUser

log = logging.getLogger("sale")


def buy(products: int) -> dict[str, Any]:
    return {"method": "POST", "url": "/products/1/reduce"}


def fill_cart(products: int) -> dict[str, Any]:
    """Fill a cart with some of the products, in random order. So the shop has to sort its locks."""
    # Most carts are small, because only they can sell the rest of one product when the others are sold out.
    size = min(random.randint(1, products), random.randint(1, products))
    chosen = random.sample(range(1, products + 1), size)
    return {"method": "POST", "url": "/checkout", "json": {"lines": [{"sku": sku} for sku in chosen]}}


def reduce_stock(products: int) -> dict[str, Any]:
    return {"method": "GET", "url": "/stock/reduce?id=1"}


def kill(products: int) -> dict[str, Any]:
    return {"method": "GET", "url": "/kill"}


def rush(way: str, products: int) -> dict[str, Any]:
    return {"method": "POST", "url": f"/rush/{way}/1"}


VISITS: dict[str, Callable[[int], dict[str, Any]]] = {
    "buy": buy,
    "cart": fill_cart,
    "reduce": reduce_stock,
    "kill": kill,
    **{
        f"rush-{way}": partial(rush, way)
        for way in ("unlocked", "conditional", "for_update", "locked", "batched")
    },
}


class Sale:
    """What the buyers of a run share: a gate, so that they start together, and a row for each answer."""

    def __init__(self) -> None:
        self.opened = gevent.event.Event()
        self.began = 0.0
        self.buyers = 0
        self.purchases = 0
        self.rows: list[dict[str, Any]] = []

    def open(self) -> None:
        self.began = time.time()
        self.opened.set()

    def enter(self, environment: Environment) -> None:
        """Wait at the gate. The last buyer to come opens it."""
        self.buyers += 1
        if environment.runner is None or self.buyers >= environment.runner.target_user_count:
            self.open()
        self.opened.wait()

    def leave(self, environment: Environment) -> None:
        self.buyers -= 1
        if self.buyers or environment.runner is None:
            return
        # Without this, the runner would wait for ever. A buyer's own greenlet can't end the runner.
        headless = environment.web_ui is None
        gevent.spawn(environment.runner.quit if headless else environment.runner.stop)


sale = Sale()


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--purchases", type=int, default=10, help="How often each buyer buys")
    parser.add_argument("--visit", choices=VISITS, default="buy", help="What they ask the shop for")
    parser.add_argument("--products", type=int, default=1, help="How many products there are, for carts")
    # The pause has a limit, so that a sale ends.
    parser.add_argument(
        "--pause", type=float, default=5.0, help="Longest time until they come again, seconds"
    )
    parser.add_argument("--record", default="", help="Write one row for each answer to this JSON file")


def begin(environment: Environment, **_: Any) -> None:
    global sale  # Locust's web page can start one sale after another.
    sale = Sale()


def write_record(environment: Environment, **_: Any) -> None:
    if environment.parsed_options and environment.parsed_options.record:
        with open(environment.parsed_options.record, "w") as file:
            json.dump({"began": sale.began, "rows": sale.rows}, file)


events.init_command_line_parser.add_listener(add_arguments)
events.test_start.add_listener(begin)
events.quitting.add_listener(write_record)


class Buyer(FastHttpUser):
    wait_time = constant(0)
    # The client repeats no request, so that each answer, or its absence, is counted once.
    max_retries = 0
    connection_timeout = network_timeout = 60.0

    def on_start(self) -> None:
        options = self.environment.parsed_options
        self.left, self.products, self.visit = options.purchases, options.products, options.visit
        self.pause = options.pause
        # Request a page first, as a buyer does, so that the instances connect to their database already.
        self.client.get("/products/1", name="look")
        sale.enter(self.environment)

    @task
    def buy(self) -> None:
        if self.left == 0:
            sale.leave(self.environment)
            raise StopUser
        self.left -= 1
        sale.purchases += 1
        purchase = str(sale.purchases)
        asked = time.time()
        asking = VISITS[self.visit](self.products)
        # The shop's journal has the same name for the purchase.
        called = {"X-Purchase": purchase}
        with self.client.request(name=self.visit, catch_response=True, headers=called, **asking) as answer:
            said = body(answer)
            headers = answer.headers or {}
            row = {
                "purchase": purchase,
                "at": asked - sale.began,
                "ms": (time.time() - asked) * 1000,
                "status": answer.status_code,
                "code": said.get("code"),
                "order": said.get("order"),
                "instance": headers.get("X-Instance"),
                "wait_ms": wait_of(headers.get("Server-Timing") or ""),
            }
            sale.rows.append(row)
            # Sold out is an answer, not a failure.
            if answer.status_code in (200, 409):
                answer.success()
            else:
                answer.failure(f"{answer.status_code} {row['code'] or ''}".strip())
        # A buyer that came again at once would spend all its purchases while the lock is contended.
        gevent.sleep(min(self.pause, pause_of(headers.get("Retry-After"))))


def body(answer: Any) -> dict[str, Any]:
    try:
        said = json.loads(answer.text or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def pause_of(retry_after: str | None) -> float:
    """Return the seconds in the header ``Retry-After``; 0 without it."""
    return float(retry_after) if retry_after and retry_after.isdigit() else 0.0


def wait_of(timing: str) -> float | None:
    """Return the milliseconds of the wait for the guard, from ``wait;dur=1.25, work;dur=7.10``."""
    for part in timing.split(","):
        name, _, value = part.strip().partition(";dur=")
        if name == "wait":
            return float(value)
    return None
