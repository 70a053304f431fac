"""The story of readers: reports that are read while units are sold, and a gateway that takes five at a time.

Readers and buyers are threads. All scenarios use the same shop.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from demo_shop.configuration import Configuration
from demo_shop.remote_services import GATEWAY_LIMIT
from demo_shop.sale import PRODUCT_ID
from loadtest.report.terminal import MARKS, aligned, fold
from loadtest.run import LONGEST_SALE
from loadtest.scenario import BuyerCrowd, Outcome, Scenario
from loadtest.stack import Stack
from loadtest.stories import LIMITED, READERS_CONTROLS, SHARED, TORN, UNLIMITED
from loadtest.verdict import SOLD_OUT, Conclusion

#: The view of each scenario. The first two and the last two differ only in the guard.
PATHS = {
    TORN: "/readers/report",
    SHARED: "/readers/report/shared",
    UNLIMITED: "/readers/pay",
    LIMITED: "/readers/pay/limited",
}
#: At least this many requests have to be inside at once. With fewer, the guard may admit only one at a time.
TOGETHER = {SHARED: 2, LIMITED: GATEWAY_LIMIT}


@dataclass(frozen=True, slots=True)
class ReadersFigures:
    """The numbers of one scenario."""

    #: How many reports or payments were answered.
    answered: int
    #: How many of them were wrong: torn reports, or refused payments.
    wrong: int
    #: The most requests that were inside at one moment.
    together: int
    #: How many requests, including purchases, got no answer, or one that they must not get.
    failed: int
    #: Answers by the instance that gave them.
    served_by: Mapping[str, int]
    instances: tuple[str, ...]
    #: Units of all products before the sale.
    initial: int
    #: Units on the shelf after the sale.
    left: int
    #: Units in orders after the sale.
    sold: int
    #: Whether all visitors had finished in time.
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one scenario, and what they mean."""

    scenario: Scenario
    seen: ReadersFigures
    outcome: Outcome
    conclusion: Conclusion
    doubts: tuple[str, ...]


def judge(scenario: Scenario, seen: ReadersFigures, control: Conclusion | None) -> Reading:
    """Judge *seen*. *control*: the conclusion of the same run without the guard."""
    doubts = tuple(doubts_of(scenario, seen))
    harmless = Outcome.INCONCLUSIVE if doubts else Outcome.EXACT
    outcome = Outcome.BROKEN if seen.wrong else harmless
    if scenario.must_be is Outcome.EXACT and outcome is Outcome.BROKEN:
        conclusion = Conclusion.WRONG
    elif outcome is not scenario.must_be or doubts or control not in (None, Conclusion.SHOWN):
        conclusion = Conclusion.INCONCLUSIVE
    else:
        conclusion = Conclusion.SHOWN
    return Reading(scenario, seen, outcome, conclusion, doubts)


def doubts_of(scenario: Scenario, seen: ReadersFigures) -> Iterator[str]:
    if not seen.ended:
        yield "It did not end in time."
    if seen.failed:
        yield f"Failed requests: {seen.failed}."
    for instance in seen.instances:
        if not seen.served_by.get(instance):
            yield f"The instance {instance} answered nothing, so it took no part."
    if seen.left + seen.sold != seen.initial:
        yield f"{seen.left} units are left and {seen.sold} were sold, of {seen.initial}: the sale is wrong."
    if scenario.slug in (TORN, SHARED) and not seen.sold:
        yield "Nothing was sold, so there was nothing to tear."
    if seen.together < (least := TOGETHER.get(scenario.slug, 0)):
        yield f"At most {seen.together} inside at once, and {least} have to be: it may be a lock for fewer."


#: The duration of a payment, seconds.
PAYMENT = 0.02


class Gateway:
    """A payment gateway that counts the payments inside at once, and refuses those above its limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.url = ""
        self.begin()

    def begin(self) -> None:
        self.most = self.taken = self.refused = 0

    def pay(self) -> bool:
        """Take a payment if there is room, and return whether there was."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            room = self._inside <= GATEWAY_LIMIT
        if room:
            # Nothing sets the event: this only waits.
            threading.Event().wait(PAYMENT)
        # Leave before the answer is sent, so that the next payment is never counted beside this one.
        with self._lock:
            self._inside -= 1
            self.taken += room
            self.refused += not room
        return room


@contextmanager
def open_gateway() -> Iterator[Gateway]:
    gateway = Gateway()

    class GatewayHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200 if gateway.pay() else 429)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing: the verdict counts refusals."""

    class GatewayServer(ThreadingHTTPServer):
        daemon_threads = True
        #: The gateway has to count all payments that come at once, so the backlog has room for all of them.
        request_queue_size = 128

    with GatewayServer(("127.0.0.1", 0), GatewayHandler) as server:
        gateway.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="gateway", daemon=True)
        thread.start()
        try:
            yield gateway
        finally:
            server.shutdown()
            thread.join()


TAKEN, REFUSED = 200, 502
#: A function that sends a request to the shop: its method and path.
AskShop = Callable[[str, str], None]
#: A visitor waits at most this many seconds for an answer.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class ReadersAnswer:
    status: int
    instance: str | None
    said: dict[str, Any]


@dataclass(slots=True)
class Visitors:
    """Threads that visit the shop, each with one connection."""

    port: int
    crowds: list[threading.Thread] = field(default_factory=list)
    answers: list[ReadersAnswer] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def invite(self, users: int, visit: Callable[[AskShop], None]) -> list[threading.Thread]:
        """Make threads for *users* who run *visit*, which gets a function that sends requests to the shop."""
        invited = [threading.Thread(target=self._come, args=(visit,), daemon=True) for _ in range(users)]
        self.crowds += invited
        return invited

    def _come(self, visit: Callable[[AskShop], None]) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as shop:

            def ask(method: str, path: str) -> None:
                shop.request(method, path, headers={"Content-Length": "0"} if method == "POST" else {})
                answer = shop.getresponse()
                text = answer.read()
                said = json.loads(text) if answer.status in (TAKEN, REFUSED, SOLD_OUT) else {}
                self.answers.append(ReadersAnswer(answer.status, answer.headers["X-Instance"], said))

            try:
                visit(ask)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.errors.append(error)

    def wait_for(self, threads: Iterable[threading.Thread], until: float) -> bool:
        """Return whether all *threads* have ended by *until*."""
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


def run_scenarios(
    scenarios: Sequence[Scenario],
    backend: str,
    database: str,
    shop: Configuration,
    crowd: BuyerCrowd,
    begin: Callable[[int, int, Scenario], None],
    end: Callable[[Reading], None],
) -> list[Reading]:
    """Run all scenarios in one shop, and return the readings. *begin*, *end*: called around each scenario."""
    done: dict[str, Reading] = {}
    with open_gateway() as gateway:
        shop = replace(shop, gateway=gateway.url)
        with Stack(scenarios[0].instances, shop, backend, database) as stack:
            for number, scenario in enumerate(scenarios, 1):
                begin(number, len(scenarios), scenario)
                stack.restock()
                gateway.begin()
                visit = visit_reports if scenario.slug in (TORN, SHARED) else visit_gateway
                seen = visit(stack, PATHS[scenario.slug], crowd, gateway)
                control = done[scenario.control].conclusion if scenario.control else None
                done[scenario.slug] = judge(scenario, seen, control)
                end(done[scenario.slug])
    return list(done.values())


def visit_reports(stack: Stack, path: str, crowd: BuyerCrowd, _: Gateway) -> ReadersFigures:
    """Send readers, who request reports until all purchases are made."""
    visitors = Visitors(stack.front.port)

    def buy(ask: AskShop) -> None:
        for _ in range(crowd.purchases):
            ask("POST", f"/readers/purchase/{random.randrange(stack.shop.products) + PRODUCT_ID}")

    def look(ask: AskShop) -> None:
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
    return figures_of(stack, visitors, reports, torn, together, {TAKEN, SOLD_OUT}, ended)


def visit_gateway(stack: Stack, path: str, crowd: BuyerCrowd, gateway: Gateway) -> ReadersFigures:
    visitors = Visitors(stack.front.port)

    def buy(ask: AskShop) -> None:
        for _ in range(crowd.purchases):
            ask("POST", path)

    for thread in visitors.invite(crowd.users, buy):
        thread.start()
    ended = visitors.wait_for(visitors.crowds, time.monotonic() + LONGEST_SALE)
    paid = [answer for answer in visitors.answers if answer.status in (TAKEN, REFUSED)]
    return figures_of(stack, visitors, paid, gateway.refused, gateway.most, {TAKEN, REFUSED}, ended)


def figures_of(
    stack: Stack,
    visitors: Visitors,
    answered: Sequence[ReadersAnswer],
    wrong: int,
    together: int,
    may_be: set[int],
    ended: bool,
) -> ReadersFigures:
    ledger = stack.ledger()
    return ReadersFigures(
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
    """Return the highest number of *times*, each a beginning and an end, that share one moment."""
    # Of equal times, ends sort before beginnings.
    turns = sorted(turn for began, ended in times for turn in ((began, 1), (ended, -1)))
    inside = highest = 0
    for _, change in turns:
        inside += change
        highest = max(highest, inside)
    return highest


#: The readings of the matrix, by framework and lock service.
ReadersCells = dict[tuple[str, str], Sequence[Reading]]
HEADINGS = ("scenario", "answered", "wrong", "at once", "must be", "is", "")


def row(reading: Reading) -> tuple[str, ...]:
    """Return a row of the table, under `HEADINGS`."""
    seen, scenario = reading.seen, reading.scenario
    figures = (str(seen.answered), str(seen.wrong), str(seen.together))
    return scenario.slug, *figures, scenario.must_be, reading.outcome, MARKS[reading.conclusion]


def what_happened(reading: Reading) -> str:
    seen = reading.seen
    if reading.scenario.slug in (TORN, SHARED):
        begin = (
            f"{seen.answered} reports were read while {seen.sold} units were sold, "
            f"up to {seen.together} at once."
        )
        if seen.wrong:
            return f"{begin} {seen.wrong} of them added up to a shop that never was."
        return f"{begin} Stock and orders added up to {seen.initial} in each."
    begin = f"{seen.answered} payments were sent to a gateway that takes {GATEWAY_LIMIT} at a time."
    if seen.wrong:
        return f"{begin} Up to {seen.together} were there at once, and it refused {seen.wrong}."
    return f"{begin} Never more than {seen.together} were there at once, and it refused none."


def in_all(readings: Sequence[Reading]) -> str:
    conclusions = [reading.conclusion for reading in readings]
    if Conclusion.WRONG in conclusions:
        return "WRONG: a report was torn, or a payment refused, in spite of the guard."
    if Conclusion.INCONCLUSIVE in conclusions:
        return "INCONCLUSIVE: at least one scenario did not go as expected, so nothing is proven."
    return (
        "Every scenario went as expected: what went wrong without a guard went right with it, with many "
        "inside at once."
    )


def why_not(reading: Reading) -> tuple[str, ...]:
    """Return the reasons if the scenario did not show what it must."""
    if reading.conclusion is Conclusion.SHOWN:
        return ()
    if reading.scenario.must_be is Outcome.BROKEN and reading.outcome is not Outcome.BROKEN:
        return (*reading.doubts, "Nothing went wrong without the guard, so with it nothing is proven.")
    return reading.doubts or (what_happened(reading),)


def summary(readings: Sequence[Reading]) -> str:
    told = [fold(f"{reading.scenario.title}: {what_happened(reading)}") for reading in readings]
    table = aligned([HEADINGS, *map(row, readings)], "<>>><<<")
    odd = [f"  {reading.scenario.title}: {reason}" for reading in readings for reason in why_not(reading)]
    return "\n".join([*told, "", table, "", fold(in_all(readings)), *(fold(line, indent=4) for line in odd)])


def in_every_cell(cells: ReadersCells) -> str:
    """Return the conclusion of the matrix."""
    return in_all([reading for done in cells.values() for reading in done])


def matrix_summary(cells: ReadersCells) -> str:
    """Return a table with a row for each framework: what went wrong without the guard and with it."""
    backends = list(dict.fromkeys(backend for _, backend in cells))
    frameworks = dict.fromkeys(framework for framework, _ in cells)
    rows = [(one, *(cell(cells[one, backend]) for backend in backends)) for one in frameworks]
    odd = [
        f"  {framework}, {backend}, {reading.scenario.title}: {reason}"
        for (framework, backend), done in cells.items()
        for reading in done
        for reason in why_not(reading)
    ]
    said = "Torn reports without the guard and with it; refused payments without it and with it:"
    told = [
        said,
        "",
        aligned([("framework", *backends), *rows], "<" * (1 + len(backends))),
        "",
        fold(in_every_cell(cells)),
    ]
    return "\n".join([*told, *(fold(line, indent=4) for line in odd)])


def cell(readings: Sequence[Reading]) -> str:
    wrong = {reading.scenario.slug: str(reading.seen.wrong) for reading in readings}
    pairs = [
        f"{wrong.get(control, '-')}, {wrong.get(slug, '-')}" for slug, control in READERS_CONTROLS.items()
    ]
    shown = all(reading.conclusion is Conclusion.SHOWN for reading in readings)
    return "; ".join(pairs) + ("" if shown else " ?")


def as_json(readings: Sequence[Reading], backend: str, database: str) -> dict[str, object]:
    return {
        "summary": in_all(readings),
        "scenarios": [reading_as_json(reading, backend, database) for reading in readings],
    }


def reading_as_json(reading: Reading, backend: str, database: str) -> dict[str, object]:
    return {
        "scenario": reading.scenario.slug,
        "title": reading.scenario.title,
        "backend": backend,
        "database": database,
        "must_be": reading.scenario.must_be,
        "outcome": reading.outcome,
        "conclusion": reading.conclusion,
        "doubts": reading.doubts,
        "figures": asdict(reading.seen),
    }
