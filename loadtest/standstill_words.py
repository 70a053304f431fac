"""What the page says of a process that stands still."""

from __future__ import annotations

from loadtest.live_sale import LiveSale, Sale
from loadtest.standstill import Standing


def offer(live: LiveSale) -> str:
    """Beside the box to tick; "": nothing can stand still here."""
    if not live.standstill.offered:
        return ""
    lease = f"{live.stack.shop.lock_ttl:g} s"
    return f"It is stopped (SIGSTOP) after it has read the stock, for longer than its lock lasts: {lease}."


def told_meanwhile(standing: Standing) -> str:
    """Changes only when there is something new: each change is read aloud."""
    who = standing.instance
    if not standing.locked:
        return f"{who} stands still. It has read {standing.unit} in stock, and others buy meanwhile."
    if not standing.passed_on:
        return (
            f"{who} stands still, and holds the lock. Everybody waits until its lease "
            f"of {standing.lease:g} s is over."
        )
    return f"{who} stands still. Its lease is over, and the lock has passed on: {who} does not know."


def told_of_standstill(standing: Standing) -> str:
    """What happened, in the order in which it did."""
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


def why(sale: Sale) -> str:
    """Below the sentence of what happened; while a process stands still, for how long."""
    if not sale.runs:
        return sale.choice.why_late if sale.standing else sale.choice.why
    standing = sale.standing
    return f"For {standing.seconds:.0f} s." if standing and standing.lasted is None else ""
