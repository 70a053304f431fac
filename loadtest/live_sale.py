"""Sales on request, in a shop that is open: the shelf is filled, and fifty buyers come at once."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from demo_shop.choices import Choice, choices
from demo_shop.ledger import read_ledger
from demo_shop.moments import HEADER
from demo_shop.orders import PRODUCT_ID, Ledger
from loadtest.run import is_refusal
from loadtest.stack import Stack
from loadtest.standstill import Standing, Standstill
from loadtest.verdict import SOLD, SOLD_OUT

BUYERS = 50
#: Longer than any wait for a lock, and any standstill, seconds.
PATIENCE = 30.0
#: A buyer who was turned away comes again, after so many seconds at most.
PAUSE = 2.0
#: What a purchase came to.
ANSWERS = (BOUGHT, MISSED, REFUSED, FAILED) = ("sold", "sold_out", "refused", "failed")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a sale sold of the product, and to how many twice."""

    initial: int
    left: int
    sold: int
    #: How often each unit was sold: a unit is the stock that its buyer saw.
    units: dict[int, int]

    @property
    def repeated(self) -> int:
        """Units that were sold more than once."""
        return sum(times > 1 for times in self.units.values())

    @property
    def excess(self) -> int:
        """Orders for units that had been sold already."""
        return self.sold - len(self.units)


def count(ledger: Ledger, initial: int) -> Tally:
    orders = [order for order in ledger.orders if order.product == PRODUCT_ID]
    units = Counter(order.stock_seen for order in orders)
    return Tally(initial, ledger.left[PRODUCT_ID], len(orders), dict(units))


@dataclass(slots=True)
class Sale:
    """One rush: what was chosen, and what the buyers were told."""

    number: int
    choice: Choice
    #: All keys from the start: they are read while buyers add to them.
    answers: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(ANSWERS, 0)))
    #: Whether a process is to stand still, and what came of that.
    stands_still: bool = False
    standing: Standing | None = None
    runs: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What the shop said to one attempt."""

    #: One of `ANSWERS`.
    told: str
    #: How many seconds to wait before the next attempt.
    pause: float = 0.0
    status: int = 0
    code: str = ""


class LiveSale:
    """The sales of one `Stack`, one at a time."""

    def __init__(self, stack: Stack) -> None:
        """Before the instances of *stack* are started."""
        self.stack, self.choices = stack, choices(stack.shop)
        self.standstill = Standstill(stack)
        self.sale: Sale | None = None
        #: By slug: the last sale with each choice, and what came of it.
        self.last: dict[str, tuple[Sale, Tally]] = {}
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def begin(self, slug: str, stands_still: bool = False) -> bool:
        """Fill the shelf and send the buyers, who meet the guard *slug*. False: a sale is under way."""
        with self._mutex:
            if self.sale and self.sale.runs:
                return False
            number = self.sale.number + 1 if self.sale else 1
            self.sale = Sale(number, self.choices[slug], stands_still=stands_still)
            self._thread = threading.Thread(target=self._hold, args=(self.sale,), name="sale", daemon=True)
            self._thread.start()
        return True

    def ledger(self) -> Ledger:
        return read_ledger(self.stack.database)

    def close(self) -> None:
        """Wait for the end of the sale. Where the instances are gone its buyers get no answer, and go."""
        if self._thread:
            self._thread.join()
        self.standstill.close()

    def _hold(self, sale: Sale) -> None:
        try:
            with self.stack.shelf:
                self.stack.restock()
                if sale.stands_still:
                    self._send_around(sale)
                else:
                    self._send(sale, BUYERS)
                tally = count(self.ledger(), self.stack.shop.stock)
            # A new one: the old one may be being read.
            self.last = self.last | {sale.choice.slug: (sale, tally)}
        finally:
            sale.runs = False

    def _send(self, sale: Sale, buyers: int) -> None:
        for buyer in self._come(sale, buyers):
            buyer.join()

    def _send_around(self, sale: Sale) -> None:
        """One buyer first, whose process stands still while the others come."""
        standstill = self.standstill
        port, purchase = standstill.port, {HEADER: standstill.purchase}
        first = threading.Thread(target=self._buy, args=(sale, port, purchase))
        first.start()
        with standstill.held(sale.choice) as sale.standing:
            others = self._come(sale, BUYERS - 1)
        for buyer in (first, *others):
            buyer.join()

    def _come(self, sale: Sale, number: int) -> list[threading.Thread]:
        """So many buyers at once."""
        together, port = threading.Barrier(number), self.stack.front.port

        def buy() -> None:
            together.wait()
            self._buy(sale, port)

        buyers = [threading.Thread(target=buy) for _ in range(number)]
        for buyer in buyers:
            buyer.start()
        return buyers

    def _buy(self, sale: Sale, port: int, purchase: Mapping[str, str] | None = None) -> None:
        """Buy at *port*, or be told "sold out". *purchase*: headers of the one that stands still."""
        patience, headers = time.monotonic() + PATIENCE, dict(purchase or {})
        while True:
            try:
                answer = self._ask(sale.choice.slug, port, headers)
            except (OSError, http.client.HTTPException, ValueError):
                answer = Answer(FAILED)
            if headers and sale.standing:
                sale.standing.status, sale.standing.code = answer.status, answer.code
            headers = {}
            if answer.told != REFUSED or time.monotonic() + answer.pause > patience:
                break
            threading.Event().wait(answer.pause)
        with self._mutex:
            sale.answers[answer.told] += 1

    def _ask(self, slug: str, port: int, headers: Mapping[str, str]) -> Answer:
        """What one purchase comes to."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.request("POST", f"/products/{PRODUCT_ID}/reduce/{slug}", headers=dict(headers))
            answer = connection.getresponse()
            said = json.loads(answer.read())
        if answer.status == SOLD:
            return Answer(BOUGHT, status=answer.status)
        code = said.get("code")
        if answer.status == SOLD_OUT:
            return Answer(MISSED, status=answer.status, code=code)
        after = answer.headers.get("Retry-After") or "1"
        pause = min(float(after), PAUSE) if after.isdigit() else PAUSE
        return Answer(REFUSED if is_refusal(code) else FAILED, pause, answer.status, code)
