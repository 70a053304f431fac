"""The story of readers, run: readers and buyers as threads, who come to one shop for all its scenarios."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from demo_shop.configuration import Configuration
from demo_shop.orders import PRODUCT_ID
from loadtest.crowd import Crowd
from loadtest.gateway import Gateway, open_gateway
from loadtest.readers import PATHS, SHARED, TORN, Reading, Seen, judge
from loadtest.run import LONGEST_SALE
from loadtest.scenario import Scenario
from loadtest.stack import Stack
from loadtest.verdict import SOLD_OUT

OK, REFUSED = 200, 502
#: Asks the shop: the method, and the path.
LockRequest = Callable[[str, str], None]
#: For one answer, seconds.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    instance: str | None
    said: dict[str, Any]


@dataclass(slots=True)
class Visitors:
    """Threads that begin together; each has one connection."""

    port: int
    crowds: list[threading.Thread] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def invite(self, users: int, visit: Callable[[LockRequest], None]) -> list[threading.Thread]:
        """*users* who do *visit*, which is given what asks the shop."""
        invited = [threading.Thread(target=self._come, args=(visit,), daemon=True) for _ in range(users)]
        self.crowds += invited
        return invited

    def _come(self, visit: Callable[[LockRequest], None]) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as shop:

            def ask(method: str, path: str) -> None:
                shop.request(method, path, headers={"Content-Length": "0"} if method == "POST" else {})
                answer = shop.getresponse()
                text = answer.read()
                said = json.loads(text) if answer.status in (OK, REFUSED, SOLD_OUT) else {}
                self.answers.append(Answer(answer.status, answer.headers["X-Instance"], said))

            try:
                visit(ask)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.errors.append(error)

    def wait_for(self, threads: Iterable[threading.Thread], until: float) -> bool:
        """Whether all of *threads* have gone home by *until*."""
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


def read(
    scenarios: Sequence[Scenario],
    backend: str,
    database: str,
    shop: Configuration,
    crowd: Crowd,
    begin: Callable[[int, int, Scenario], None],
    end: Callable[[Reading], None],
) -> list[Reading]:
    """Each scenario, in the same shop. *begin* and *end* are told how far it is."""
    done: dict[str, Reading] = {}
    with open_gateway() as gateway:
        shop = replace(shop, gateway=gateway.url)
        with Stack(scenarios[0].instances, shop, backend, database) as stack:
            for number, scenario in enumerate(scenarios, 1):
                begin(number, len(scenarios), scenario)
                stack.restock()
                gateway.begin()
                visit = report if scenario.slug in (TORN, SHARED) else pay
                seen = visit(stack, PATHS[scenario.slug], crowd, gateway)
                control = done[scenario.control].conclusion if scenario.control else None
                done[scenario.slug] = judge(scenario, seen, control)
                end(done[scenario.slug])
    return list(done.values())


def report(stack: Stack, path: str, crowd: Crowd, _: Gateway) -> Seen:
    """Reports are asked for until all purchases are made."""
    visitors = Visitors(stack.front.port)

    def buy(ask: LockRequest) -> None:
        for _ in range(crowd.purchases):
            ask("POST", f"/readers/purchase/{random.randrange(stack.shop.products) + PRODUCT_ID}")

    def look(ask: LockRequest) -> None:
        while not visitors.over.is_set():
            ask("GET", path)

    until = time.monotonic() + LONGEST_SALE
    buyers, readers = visitors.invite(max(1, crowd.users // 2), buy), visitors.invite(crowd.users, look)
    for thread in visitors.crowds:
        thread.start()
    ended = visitors.wait_for(buyers, until)
    visitors.over.set()
    ended &= visitors.wait_for(readers, until + PATIENCE)
    reports = [answer for answer in visitors.answers if "ended" in answer.said]
    initial = stack.shop.stock * stack.shop.products
    torn = sum(answer.said["stock"] + answer.said["sold"] != initial for answer in reports)
    together = most([(answer.said["began"], answer.said["ended"]) for answer in reports])
    return seen(stack, visitors, reports, torn, together, {OK, SOLD_OUT}, ended)


def pay(stack: Stack, path: str, crowd: Crowd, gateway: Gateway) -> Seen:
    visitors = Visitors(stack.front.port)

    def buy(ask: LockRequest) -> None:
        for _ in range(crowd.purchases):
            ask("POST", path)

    for thread in visitors.invite(crowd.users, buy):
        thread.start()
    ended = visitors.wait_for(visitors.crowds, time.monotonic() + LONGEST_SALE)
    paid = [answer for answer in visitors.answers if answer.status in (OK, REFUSED)]
    return seen(stack, visitors, paid, gateway.refused, gateway.most, {OK, REFUSED}, ended)


def seen(
    stack: Stack,
    visitors: Visitors,
    answered: Sequence[Answer],
    wrong: int,
    together: int,
    may_be: set[int],
    ended: bool,
) -> Seen:
    ledger = stack.ledger()
    return Seen(
        len(answered),
        wrong,
        together,
        sum(answer.status not in may_be for answer in visitors.answers) + len(visitors.errors),
        dict(Counter(str(answer.instance) for answer in answered)),
        stack.names,
        stack.shop.stock * stack.shop.products,
        ledger.stock,
        ledger.sold,
        ended,
    )


def most(times: Iterable[tuple[float, float]]) -> int:
    """How many of *times*, each from and to, share one moment."""
    # At the same moment one ends before another begins.
    turns = sorted(turn for began, ended in times for turn in ((began, 1), (ended, -1)))
    inside = highest = 0
    for _, change in turns:
        inside += change
        highest = max(highest, inside)
    return highest
