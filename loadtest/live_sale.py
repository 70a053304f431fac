"""Sales on request, in a shop that is open: the shelf is filled, and fifty buyers come at once."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

from demo_shop.choices import Choice, choices
from demo_shop.ledger import read_ledger
from demo_shop.orders import PRODUCT_ID, Ledger
from loadtest.run import is_refusal
from loadtest.stack import Stack
from loadtest.verdict import SOLD, SOLD_OUT

BUYERS = 50
#: Longer than any wait for a lock, seconds.
PATIENCE = 30.0
#: How often a buyer comes again who was turned away, and after how many seconds at most.
RETURNS, PAUSE = 3, 2.0
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
    runs: bool = True


class LiveSale:
    """The sales of one `Stack`, one at a time."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.choices = stack, choices(stack.shop)
        self.sale: Sale | None = None
        #: By slug: what came of the last sale with each choice.
        self.last: dict[str, Tally] = {}
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def begin(self, slug: str) -> bool:
        """Fill the shelf and send the buyers, who meet the guard *slug*. False: a sale is under way."""
        with self._mutex:
            if self.sale and self.sale.runs:
                return False
            self.sale = Sale(self.sale.number + 1 if self.sale else 1, self.choices[slug])
            self._thread = threading.Thread(target=self._hold, args=(self.sale,), name="sale", daemon=True)
            self._thread.start()
        return True

    def ledger(self) -> Ledger:
        return read_ledger(self.stack.database)

    def close(self) -> None:
        """Wait for the end of the sale. Where the instances are gone its buyers get no answer, and go."""
        if self._thread:
            self._thread.join()

    def _hold(self, sale: Sale) -> None:
        try:
            with self.stack.shelf:
                self.stack.restock()
                self._send(sale)
                tally = count(self.ledger(), self.stack.shop.stock)
            # A new one: the old one may be being read.
            self.last = self.last | {sale.choice.slug: tally}
        finally:
            sale.runs = False

    def _send(self, sale: Sale) -> None:
        together = threading.Barrier(BUYERS)
        buyers = [threading.Thread(target=self._buy, args=(sale, together)) for _ in range(BUYERS)]
        for buyer in buyers:
            buyer.start()
        for buyer in buyers:
            buyer.join()

    def _buy(self, sale: Sale, together: threading.Barrier) -> None:
        together.wait()
        told = FAILED
        for _ in range(RETURNS):
            try:
                told, pause = self._ask(sale.choice.slug)
            except (OSError, http.client.HTTPException, ValueError):
                told = FAILED
                break
            if told != REFUSED:
                break
            threading.Event().wait(pause)
        with self._mutex:
            sale.answers[told] += 1

    def _ask(self, slug: str) -> tuple[str, float]:
        """What one purchase came to, and how many seconds to wait before the next attempt."""
        port = self.stack.front.port
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.request("POST", f"/products/{PRODUCT_ID}/reduce/{slug}")
            answer = connection.getresponse()
            said = json.loads(answer.read())
        if answer.status == SOLD:
            return BOUGHT, 0.0
        if answer.status == SOLD_OUT:
            return MISSED, 0.0
        after = answer.headers.get("Retry-After") or "1"
        refused = is_refusal(said.get("code"))
        return REFUSED if refused else FAILED, min(float(after), PAUSE) if after.isdigit() else PAUSE
