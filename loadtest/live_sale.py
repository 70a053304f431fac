"""Sales that the page of an open shop asks for: their buyers, and the data that the page shows."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from demo_shop.ledger import read_ledger
from demo_shop.sale import CATALOGUE, PRODUCT_ID, PURCHASE_HEADER, Ledger
from demo_shop.storefront import Choice, choices
from loadtest.moments import Standstill, StoppedHolder
from loadtest.run import is_refusal
from loadtest.stack import Stack
from loadtest.verdict import SOLD, SOLD_OUT

BUYERS = 50
#: Seconds until a buyer gives up: longer than any wait for a lock and any standstill.
PATIENCE = 30.0
#: A buyer who was turned away comes again after this many seconds at most.
PAUSE = 2.0
#: The outcomes of a purchase.
ANSWERS = (BOUGHT, MISSED, REFUSED, FAILED) = ("sold", "sold_out", "refused", "failed")


@dataclass(frozen=True, slots=True)
class SaleTally:
    """How many units a sale sold of the product, and how many of them twice."""

    initial: int
    left: int
    sold: int
    #: How often each unit was sold: a unit is the stock that its buyer saw.
    units: dict[int, int]

    @property
    def repeated(self) -> int:
        """The number of units that were sold more than once."""
        return sum(times > 1 for times in self.units.values())

    @property
    def excess(self) -> int:
        """The number of orders for units that had been sold already."""
        return self.sold - len(self.units)


def count(ledger: Ledger, initial: int) -> SaleTally:
    orders = [order for order in ledger.orders if order.product == PRODUCT_ID]
    units = Counter(order.stock_seen for order in orders)
    return SaleTally(initial, ledger.left[PRODUCT_ID], len(orders), dict(units))


@dataclass(slots=True)
class PageSale:
    """One sale that the page asked for: the chosen guard, and the answers to the buyers."""

    number: int
    choice: Choice
    #: The number of answers by outcome. All keys exist from the start, because one thread reads the counts
    #: for the page while others change them.
    answers: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(ANSWERS, 0)))
    #: Whether a process is to be stopped.
    stands_still: bool = False
    #: The holder that was stopped, or None.
    standing: StoppedHolder | None = None
    runs: bool = True


@dataclass(frozen=True, slots=True)
class SaleAnswer:
    """The shop's answer to one attempt."""

    #: One of `ANSWERS`.
    told: str
    #: How many seconds to wait before the next attempt.
    pause: float = 0.0
    status: int = 0
    code: str = ""


class LiveSale:
    """The sales of one `Stack`, one at a time."""

    def __init__(self, stack: Stack) -> None:
        """Call this before the instances of *stack* start, because it adds to their configuration."""
        self.stack, self.choices = stack, choices(stack.shop)
        self.standstill = Standstill(stack)
        self.sale: PageSale | None = None
        #: The last sale with each choice, by slug, and its outcome.
        self.last: dict[str, tuple[PageSale, SaleTally]] = {}
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def begin(self, slug: str, stands_still: bool = False) -> bool:
        """Fill the shelf and send buyers to the guard *slug*. Return False if a sale is under way."""
        with self._mutex:
            if self.sale and self.sale.runs:
                return False
            number = self.sale.number + 1 if self.sale else 1
            self.sale = PageSale(number, self.choices[slug], stands_still=stands_still)
            self._thread = threading.Thread(target=self._hold, args=(self.sale,), name="sale", daemon=True)
            self._thread.start()
        return True

    def ledger(self) -> Ledger:
        return read_ledger(self.stack.database)

    def close(self) -> None:
        """Wait for the end of the sale. It ends even if the instances have ended, because buyers give up."""
        if self._thread:
            self._thread.join()
        self.standstill.close()

    def _hold(self, sale: PageSale) -> None:
        try:
            with self.stack.shelf:
                self.stack.restock()
                if sale.stands_still:
                    self._send_around(sale)
                else:
                    self._send(sale, BUYERS)
                tally = count(self.ledger(), self.stack.shop.stock)
            # Make a new dict, because another thread may be reading the old one.
            self.last = self.last | {sale.choice.slug: (sale, tally)}
        finally:
            sale.runs = False

    def _send(self, sale: PageSale, buyers: int) -> None:
        for buyer in self._come(sale, buyers):
            buyer.join()

    def _send_around(self, sale: PageSale) -> None:
        """Send one buyer first, whose process is stopped while the others come."""
        standstill = self.standstill
        port, purchase = standstill.port, {PURCHASE_HEADER: standstill.purchase}
        first = threading.Thread(target=self._buy, args=(sale, port, purchase))
        first.start()
        with standstill.held(sale.choice) as sale.standing:
            others = self._come(sale, BUYERS - 1)
        for buyer in (first, *others):
            buyer.join()

    def _come(self, sale: PageSale, number: int) -> list[threading.Thread]:
        """Start *number* buyers at once."""
        together, port = threading.Barrier(number), self.stack.front.port

        def buy() -> None:
            together.wait()
            self._buy(sale, port)

        buyers = [threading.Thread(target=buy) for _ in range(number)]
        for buyer in buyers:
            buyer.start()
        return buyers

    def _buy(self, sale: PageSale, port: int, purchase: Mapping[str, str] | None = None) -> None:
        """Buy at *port*, and come again if refused. *purchase*: extra headers of the purchase to stop."""
        patience, headers = time.monotonic() + PATIENCE, dict(purchase or {})
        while True:
            try:
                answer = self._ask(sale.choice.slug, port, headers)
            except (OSError, http.client.HTTPException, ValueError):
                answer = SaleAnswer(FAILED)
            if headers and sale.standing:
                sale.standing.status, sale.standing.code = answer.status, answer.code
            headers = {}
            if answer.told != REFUSED or time.monotonic() + answer.pause > patience:
                break
            threading.Event().wait(answer.pause)
        with self._mutex:
            sale.answers[answer.told] += 1

    def _ask(self, slug: str, port: int, headers: Mapping[str, str]) -> SaleAnswer:
        """Request one purchase, and return the outcome."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.request("POST", f"/products/{PRODUCT_ID}/reduce/{slug}", headers=dict(headers))
            answer = connection.getresponse()
            said = json.loads(answer.read())
        if answer.status == SOLD:
            return SaleAnswer(BOUGHT, status=answer.status)
        code = said.get("code")
        if answer.status == SOLD_OUT:
            return SaleAnswer(MISSED, status=answer.status, code=code)
        after = answer.headers.get("Retry-After") or "1"
        pause = min(float(after), PAUSE) if after.isdigit() else PAUSE
        return SaleAnswer(REFUSED if is_refusal(code) else FAILED, pause, answer.status, code)


def offer(live: LiveSale) -> str:
    """Return the sentence beside the checkbox for a standstill; "" if no process can be stopped."""
    if not live.standstill.offered:
        return ""
    lease = f"{live.stack.shop.lock_ttl:g} s"
    return f"It is stopped (SIGSTOP) after it has read the stock, for longer than its lock lasts: {lease}."


def told_meanwhile(standing: StoppedHolder) -> str:
    """Say what happens while a process stands still. The text rarely changes: a screen reader speaks it."""
    who = standing.instance
    if not standing.locked:
        return f"{who} stands still. It has read {standing.unit} in stock, and others buy meanwhile."
    if not standing.passed_on:
        return (
            f"{who} stands still, and holds the lock. Everybody waits until its lease "
            f"of {standing.lease:g} s is over."
        )
    return f"{who} stands still. Its lease is over, and the lock has passed on: {who} does not know."


def told_of_standstill(standing: StoppedHolder) -> str:
    """Say what happened during a standstill, and after it."""
    who, long = standing.instance, f"{standing.seconds:.0f} s"
    if not standing.locked:
        said = f"{who} stood still for {long} after it had read {standing.unit} in stock"
    elif standing.passed_on:
        said = f"{who} stood still for {long}, and the lock that it held passed on"
    else:
        said = f"{who} stood still for {long}, and kept the lock"
    if standing.sold:
        said += f"; others bought {standing.sold} unit{'' if standing.sold == 1 else 's'} meanwhile"
    if standing.status == 200:
        return f"{said}. Then it went on, and sold unit {standing.unit}, which it had read before."
    if standing.code == "lock_lost":
        return f"{said}. Then it went on, and its purchase was rolled back: the buyer had to come again."
    return f"{said}. Then it went on, and its buyer was told {standing.status} {standing.code}".rstrip() + "."


def why(sale: PageSale) -> str:
    """Return the reason for the outcome; while a process stands still, say for how long."""
    if not sale.runs:
        return sale.choice.why_late if sale.standing else sale.choice.why
    standing = sale.standing
    return f"For {standing.seconds:.0f} s." if standing and standing.lasted is None else ""


#: The number of orders in the page's table.
RECENT = 8


def state(live: LiveSale) -> dict[str, object]:
    """Return all that the page shows about its sales, as JSON."""
    sale, ledger = live.sale, live.ledger()
    tally = count(ledger, live.stack.shop.stock)
    return {
        "standstill": offer(live),
        "number": sale.number if sale else 0,
        "runs": bool(sale and sale.runs),
        "answered": sale.answers.total() if sale else 0,
        "said": told_of_sale(sale, tally),
        "why": why(sale) if sale else "",
        "good": not tally.excess,
        "initial_stock": tally.initial,
        "stock": tally.left,
        "sold": tally.sold,
        "repeated": tally.repeated,
        "excess": tally.excess,
        "instances": [one_instance(name, ledger, tally) for name in live.stack.front.names],
        "last": {slug: in_short(*last) for slug, last in live.last.items()},
        "shelf": [{"id": product, "stock": left} for product, left in ledger.left.items()],
        "recent_orders": recent(ledger, tally),
    }


def told_of_sale(sale: PageSale | None, tally: SaleTally) -> str:
    """Say what just happened, in one sentence or a few."""
    if sale and sale.runs:
        if sale.standing and sale.standing.lasted is None:
            return told_meanwhile(sale.standing)
        return f"{BUYERS} buyers have come. {sale.choice.title} …"
    if not tally.sold:
        return "Nobody has bought anything yet."
    orders = "1 order was" if tally.sold == 1 else f"{tally.sold} orders were"
    said = [f"{orders} confirmed, and there were {tally.initial} units."]
    if tally.excess:
        units = "1 unit was" if tally.repeated == 1 else f"{tally.repeated} units were"
        what = "1 order is for a unit" if tally.excess == 1 else f"{tally.excess} orders are for units"
        said.append(f"{units} sold more than once: {what} that somebody else had already.")
    else:
        said.append("No unit was sold twice.")
    stood = [told_of_standstill(sale.standing)] if sale and sale.standing else []
    return " ".join([*stood, *said, *told_of_answers(sale)])


def told_of_answers(sale: PageSale | None) -> list[str]:
    answers = sale.answers if sale else Counter[str]()
    words = {
        MISSED: "told “sold out”",
        REFUSED: "turned away by the lock",
        FAILED: "given an error, or no answer",
    }
    return [
        f"{answers[what]} {'buyer was' if answers[what] == 1 else 'buyers were'} {said}."
        for what, said in words.items()
        if answers[what]
    ]


def one_instance(name: str, ledger: Ledger, tally: SaleTally) -> dict[str, object]:
    """Return the units that an instance sold, and which of them any instance sold again."""
    mine = Counter(
        order.stock_seen for order in ledger.orders if order.instance == name and order.product == PRODUCT_ID
    )
    units = [
        {"unit": unit, "times": times, "twice": tally.units[unit] > 1}
        for unit, times in sorted(mine.items(), reverse=True)
    ]
    return {"name": name, "sold": mine.total(), "units": units}


def in_short(sale: PageSale, tally: SaleTally) -> str:
    """Return a short outcome of a sale, for the list of guards."""
    stood = "One process stood still: " if sale.standing else ""
    said = f"{stood}{tally.sold} orders for {tally.initial} units"
    return f"{said}, {tally.excess} for units already sold" if tally.excess else f"{said}, none twice"


def recent(ledger: Ledger, tally: SaleTally) -> list[dict[str, object]]:
    names = list(CATALOGUE)
    return [
        {
            "time": order.created_at.strftime("%H:%M:%S"),
            "number": order.number,
            "product": names[order.product - PRODUCT_ID],
            "unit": order.stock_seen,
            "instance": order.instance,
            "times": (times := tally.units[order.stock_seen] if order.product == PRODUCT_ID else 1),
            "twice": times > 1,
        }
        for order in ledger.orders[: -RECENT - 1 : -1]
    ]
