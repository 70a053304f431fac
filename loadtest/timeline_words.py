"""What a timeline shows, in plain sentences made of what was recorded."""

from __future__ import annotations

from loadtest.moments import Purchase, by_purchase
from loadtest.outages import Outage
from loadtest.run import Run
from loadtest.stopping import Stopped
from loadtest.timeline import neighbours, sell_one_unit, sold_meanwhile, stock_before


def told(run: Run) -> str:
    """Return the timeline in words; "" if there is none."""
    if run.scenario.outage:
        return told_of_outage(run, run.scenario.outage)
    purchases = by_purchase(run.moments)
    if run.stopped:
        return told_of_stop(run, purchases, run.stopped)
    if run.scenario.atomic_requests and (pair := neighbours(purchases)):
        return told_of_pair(*pair)
    return ""


def told_of_outage(run: Run, outage: Outage) -> str:
    absence = run.figures.absence
    if absence is None or absence.seconds is None:
        return ""
    said = f"{outage.why}; {absence.seconds:.2f} s without service, and {absence.expected:g} s at most."
    if not outage.forgets or run.figures.stall is None:
        return said
    if run.figures.stall.refused:
        return f"{said} The purchase inside was refused before COMMIT: nothing had happened."
    if run.figures.stall.resold:
        return f"{said} The purchase inside went on, and so did the next: both sold one unit."
    return (
        f"{said} The purchase inside had come to the fence first; the others were refused, and asked again."
    )


def told_of_pair(first: Purchase, second: Purchase) -> str:
    one, other = first["granted"].instance, second["granted"].instance
    gap = (first["committed"].at - first["released"].at) * 1000
    if gap <= 0:
        return (
            f"{one} commits, and releases the lock after that: "
            f"{other} reads {second['read'].stock}, which is what {one} has written."
        )
    said = f"{one} releases the lock {gap:.0f} ms before its COMMIT is done, and {other} gets it"
    if sell_one_unit(first, second):
        return f"{said}: it reads the same {second['read'].stock}, and sells the same unit."
    return f"{said}."


def told_of_stop(run: Run, purchases: dict[str, Purchase], stopped: Stopped) -> str:
    mine, me = purchases[stopped.purchase], stopped.instance
    other = next(name for name in run.figures.instances if name != me)
    seconds, sold = stopped.until - stopped.since, len(sold_meanwhile(purchases, stopped))
    has_read = "read" in mine and mine["read"].at < stopped.since
    begun = f"had read {mine['read'].stock}" if has_read else "had the lock, and had not begun"
    said = f"{me} {begun} when it was stopped for {seconds:.1f} s."
    stall = run.figures.stall
    if stall is None or not stall.passed_on:
        return f"{said} Nobody got its lock meanwhile."
    said += f" Its lock ran out, and {other} got it"
    if stall.refused:
        if has_read:
            return (
                f"{said}, and waited at the fence's row, which the stopped transaction kept locked. "
                f"{me} went on, found its lock lost, and was rolled back: nothing had happened."
            )
        return (
            f"{said} with a later fence, and sold {sold}. "
            f"{me} went on, came to the fence with its older number, and was refused: nothing had happened."
        )
    if not stall.resold:
        return f"{said}, and sold {sold}."
    if has_read:
        before = stock_before(run.moments, mine["committed"].at)
        return (
            f"{said}, and sold {sold}. {me} went on with what it had read, and wrote "
            f"{mine['wrote'].stock} where {before} was: those units were sold again."
        )
    return (
        f"{said}, and sold {sold}. {me} went on, and both were inside at once: "
        f"unit {mine['read'].stock} was sold by both."
    )
