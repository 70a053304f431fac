"""What the instances noted of each purchase, read back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Moment:
    #: Unix time; all instances are on one machine.
    at: float
    instance: str
    #: What its buyer calls it.
    purchase: str
    what: str
    stock: int | None = None
    status: int | None = None
    code: str | None = None


#: The moments of one purchase by what they are, in their order.
Purchase = dict[str, Moment]


def read_moments(journal: str) -> tuple[Moment, ...]:
    """Oldest first."""
    if not journal or not Path(journal).exists():
        return ()
    # An instance that is being stopped may have written half a line, which it ends later.
    lines = [line for line in Path(journal).read_text().splitlines(keepends=True) if line.endswith("\n")]
    return tuple(sorted(map(read, lines), key=lambda moment: moment.at))


def read(line: str) -> Moment:
    said = json.loads(line)
    stock = said.pop("stock", None)
    return Moment(**said, stock=None if stock is None else sum(stock.values()))


def by_purchase(moments: Iterable[Moment]) -> dict[str, Purchase]:
    """In the order in which they were granted the lock; those that never were are left out."""
    found: dict[str, Purchase] = {}
    for moment in moments:
        if moment.what == "granted":
            found[moment.purchase] = {}
        if moment.purchase in found:
            found[moment.purchase][moment.what] = moment
    return found


def early_releases(moments: Iterable[Moment]) -> int:
    """Purchases that let go of the lock before their COMMIT was done."""
    purchases = by_purchase(moments).values()
    both = [one for one in purchases if "released" in one and "committed" in one]
    return sum(one["released"].at < one["committed"].at for one in both)
