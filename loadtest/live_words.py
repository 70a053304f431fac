"""What the page says of its sales, as JSON and in sentences."""

from __future__ import annotations

from collections import Counter

from demo_shop.orders import CATALOGUE, PRODUCT_ID, Ledger
from loadtest.live_sale import BUYERS, FAILED, MISSED, REFUSED, LiveSale, Sale, Tally, count
from loadtest.standstill_words import offer, told_meanwhile, told_of_standstill, why

#: Orders in the page's table.
RECENT = 8


def state(live: LiveSale) -> dict[str, object]:
    """All that the page shows."""
    sale, ledger = live.sale, live.ledger()
    tally = count(ledger, live.stack.shop.stock)
    return {
        "standstill": offer(live),
        "number": sale.number if sale else 0,
        "runs": bool(sale and sale.runs),
        "answered": sale.answers.total() if sale else 0,
        "said": told(sale, tally),
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


def told(sale: Sale | None, tally: Tally) -> str:
    """One sentence, or two, of what just happened."""
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


def told_of_answers(sale: Sale | None) -> list[str]:
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


def one_instance(name: str, ledger: Ledger, tally: Tally) -> dict[str, object]:
    """Which units it sold, and which of them were sold more than once, by whichever instance."""
    mine = Counter(
        order.stock_seen for order in ledger.orders if order.instance == name and order.product == PRODUCT_ID
    )
    units = [
        {"unit": unit, "times": times, "twice": tally.units[unit] > 1}
        for unit, times in sorted(mine.items(), reverse=True)
    ]
    return {"name": name, "sold": mine.total(), "units": units}


def in_short(sale: Sale, tally: Tally) -> str:
    """What came of a sale, beside its guard."""
    stood = "One process stood still: " if sale.standing else ""
    said = f"{stood}{tally.sold} orders for {tally.initial} units"
    return f"{said}, {tally.excess} for units already sold" if tally.excess else f"{said}, none twice"


def recent(ledger: Ledger, tally: Tally) -> list[dict[str, object]]:
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
