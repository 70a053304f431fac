"""Sentences about a run: what happened, what it means, which code differs, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import quantiles

from demo_shop.guards import DISTRIBUTED, GUARDS
from demo_shop.storefront import ASYNC_LINES, QUART_LINES
from loadtest.moments import PurchaseMoments, StoppedPurchase, by_purchase
from loadtest.report.timeline import neighbours, sell_one_unit, sold_meanwhile, stock_before
from loadtest.run import SaleRun
from loadtest.scenario import QUART, Outcome
from loadtest.servers.databases import kind_of
from loadtest.servers.lock_services import Outage
from loadtest.verdict import SOLD_OUT, Conclusion

#: The reasons for the outcomes of scenarios that the guard's own reason does not explain.
WHY = {
    "one-process": "The process lock lets one buyer at a time read and write the stock. "
    "With one instance that is enough.",
    "two-process": "Each instance has a process lock of its own, and knows nothing of the other's. "
    "So two buyers are inside at once.",
    "mixed-process": "Each instance has a process lock of its own, whichever framework it is written in. "
    "So two buyers are inside at once.",
    "commit-plain": "Django opens its transaction around the whole view, and the decorator is inside. "
    "It releases the lock when the view returns; Django commits after that.",
    "commit-distributed": "@distributed_lock moves the transaction inside the lock: "
    "COMMIT first, then the release.",
    "stopped-unfenced": "A lock has to run out when its holder dies. The lock service can't tell one that "
    "has died from one that only stands still, and goes on later.",
    "stopped-fenced": "The fence is a row in the shop's own database, locked from before the first read "
    "until COMMIT. Which of two may commit is decided there, whatever became of the lock.",
    "late-unfenced": "A holder that stands still before it begins finds the shop as it is, "
    "and somebody else inside.",
    "late-fenced": "Each lock has a larger number than the one before. The database notes it, "
    "and lets nobody in with a smaller one.",
    "mixed-distributed": "The distributed lock has the same name in Django and in Flask, "
    "so a buyer at one keeps out the buyers at the other.",
}


def why(run: SaleRun) -> str:
    return WHY.get(run.scenario.slug) or GUARDS[run.scenario.guard].why


def units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def shelf(products: int, stock: int) -> str:
    return f"{units(stock)} of " + ("one product" if products == 1 else f"each of {products} products")


def what_happened(run: SaleRun) -> str:
    seen = run.figures
    orders = "1 order was" if seen.sold == 1 else f"{seen.sold} orders were"
    sold = f"{orders} confirmed for {units(seen.initial)}."
    if len(seen.shelves) > 1:
        sold = f"{seen.sold} units were sold, and there were {seen.initial}."
    if run.verdict.outcome is Outcome.OVERSOLD:
        unit, times = most_sold_unit(run)
        left = (
            f"The shop believes that {seen.final} are left."
            if seen.final
            else "The shop believes that it sold out."
        )
        return f"{sold} {left} Unit {unit} alone was sold {times} times."
    if run.verdict.outcome is Outcome.EXACT:
        told = f"{seen.answers.get(SOLD_OUT, 0)} purchases were told “sold out”. " if run.visit.tells else ""
        return f"{sold} {told}No unit was sold twice, none was left."
    return f"{sold} {seen.final} are left. This run proves nothing."


def away(run: SaleRun) -> str:
    """Say for how long the lock service granted nothing; "" if nothing was done to it."""
    absence = run.figures.absence
    if absence is None:
        return ""
    return "for good" if absence.seconds is None else f"{absence.seconds:.2f} s"


def what_it_means(run: SaleRun) -> str:
    if run.scenario.must_be is Outcome.EITHER and run.conclusion is Conclusion.SHOWN:
        return "As expected: whether this arrangement oversells is chance."
    must = "oversell" if run.scenario.must_be is Outcome.OVERSOLD else "sell exactly its stock"
    match run.conclusion:
        case Conclusion.SHOWN:
            return f"As expected: this arrangement must {must}, and did."
        case Conclusion.WRONG:
            return f"Wrong: this arrangement must {must}, and it sold units twice."
        case Conclusion.INCONCLUSIVE:
            return f"Inconclusive: this arrangement must {must}, and that was not shown."


def why_not(run: SaleRun) -> tuple[str, ...]:
    """Return the reasons if the scenario did not show what it must."""
    if run.conclusion is Conclusion.SHOWN:
        return ()
    reasons = run.verdict.doubts
    if run.conclusion is Conclusion.WRONG:
        reasons = run.verdict.evidence + reasons
    elif run.scenario.must_be is Outcome.OVERSOLD and run.verdict.outcome is not Outcome.OVERSOLD:
        reasons += ("The shop did not oversell, so the same shop with a better lock would prove nothing.",)
    if run.logs:
        reasons += (f"The servers' logs are in {run.logs}.",)
    return reasons or (
        "The numbers are in order, but too close, or the run to compare it with showed nothing.",
    )


def in_all(runs: Sequence[SaleRun]) -> str:
    conclusions = [run.conclusion for run in runs]
    if Conclusion.WRONG in conclusions:
        return "WRONG: a shop that was locked sold units twice."
    if Conclusion.INCONCLUSIVE in conclusions:
        return "INCONCLUSIVE: at least one scenario did not go as expected, so nothing is proven."
    lessons = []
    if any(run.scenario.atomic_requests for run in runs):
        lessons.append("a lock has to last until COMMIT")
    if any(run.scenario.outage for run in runs):
        lessons.append("what a lock service forgets with a server, the fence in the database does not")
    elif any(run.scenario.stop for run in runs):
        lessons.append("a holder that stood still and lost it is kept out by the fence only")
    if lessons:
        return f"Every scenario went as expected: {', and '.join(lessons)}."
    if {run.scenario.guard for run in runs} <= {"none", "process", DISTRIBUTED}:
        return "Every scenario went as expected: several instances oversell unless they share one lock."
    return "Every scenario went as expected: what all instances share keeps the shop from overselling."


def most_sold_unit(run: SaleRun) -> tuple[int, int]:
    sales = Counter((order.product, order.stock_seen) for order in run.ledger.orders)
    (_, unit), times = sales.most_common(1)[0]
    return unit, times


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def latencies(run: SaleRun) -> list[float]:
    return [row["ms"] for row in run.rows]


def waits(run: SaleRun) -> list[float]:
    return [row["wait_ms"] for row in run.rows if row["wait_ms"] is not None]


def database(run: SaleRun) -> str:
    return kind_of(run.database)


def told(run: SaleRun) -> str:
    """Return the timeline in words; "" if there is none."""
    if run.scenario.outage:
        return told_of_outage(run, run.scenario.outage)
    purchases = by_purchase(run.moments)
    if run.stopped:
        return told_of_stop(run, purchases, run.stopped)
    if run.scenario.atomic_requests and (pair := neighbours(purchases)):
        return told_of_pair(*pair)
    return ""


def told_of_outage(run: SaleRun, outage: Outage) -> str:
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


def told_of_pair(first: PurchaseMoments, second: PurchaseMoments) -> str:
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


def told_of_stop(run: SaleRun, purchases: dict[str, PurchaseMoments], stopped: StoppedPurchase) -> str:
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


#: What a shop that must oversell lacks, by its guard.
LACKING = {
    "none": "without a lock",
    "process": "with a lock in each instance alone",
    "plain": "with a lock that ends before COMMIT",
    DISTRIBUTED: "without the fence",
}
FENCE = 'DISTLOCK["default"]["FENCE"] = True'


def result(run: SaleRun) -> str:
    """Say in short how the sale ended, and whether that is right."""
    match run.conclusion:
        case Conclusion.SHOWN if run.scenario.must_be is Outcome.OVERSOLD:
            return f"sold too much, as it must {LACKING.get(run.scenario.guard, 'with this guard')}"
        case Conclusion.SHOWN if run.verdict.outcome is Outcome.OVERSOLD:
            return f"sold too much, as it may {LACKING[run.scenario.guard]}"
        case Conclusion.SHOWN:
            return "sold exactly what there was"
        case Conclusion.WRONG:
            return "WRONG: sold too much, with a guard that must prevent it"
        case Conclusion.INCONCLUSIVE:
            return "inconclusive: this run proves nothing"


def code(run: SaleRun) -> list[str]:
    """Return the lines of code in which the scenario differs from others."""
    guard = run.scenario.guard
    own = ASYNC_LINES if run.scenario.is_async else {}
    if run.scenario.instances[0] == QUART:
        own = QUART_LINES
    return [own.get(guard, GUARDS[guard].line), *[FENCE] * run.scenario.fence]


def of_all_sales(runs: Sequence[SaleRun]) -> str:
    over = [run for run in runs if run.figures.sold > run.figures.initial]
    if not over:
        return "No sale sold more than there was."
    exact = [run for run in runs if run.verdict.outcome is Outcome.EXACT]
    said = f"{len(over)} of {len(runs)} sales sold units that do not exist"
    return f"{said}; {len(exact)} sold all units, and each of them once."


def of_sale(run: SaleRun) -> str:
    """Say what the two lines of a sale's plot show."""
    seen = run.figures
    taken = seen.initial - seen.final
    if seen.sold > taken:
        return (
            f"The two lines part: {seen.sold} units were sold, and only {taken} left the stock, "
            "because buyers overwrote each other's change."
        )
    if seen.sold > seen.initial:
        return f"The sale goes on past its {units(seen.initial)}, to {seen.sold}."
    return f"The lines mirror each other: each unit that was sold left the stock, {seen.sold} in all."


def of_times(runs: Sequence[SaleRun]) -> str:
    """Say what the guard costs, compared with the same shop without it."""
    guarded = [run for run in runs if run.scenario.control]
    if not guarded:
        return ""
    run = guarded[-1]
    control = next((one for one in runs if one.scenario.slug == run.scenario.control), None)
    waited = percentile(waits(run), 50)
    said = f"{capital(run.scenario.title)}: half of the purchases waited {waited:.0f} ms or less for the lock"
    took = f"the whole sale took {run.duration:.1f} s"
    if control is None:
        return f"{said}, and {took}."
    return f"{said}, and {took}; without that guard it took {control.duration:.1f} s."


def next_steps(runs: Sequence[SaleRun]) -> list[tuple[str, str]]:
    """Return the commands to run next, each with what it shows."""
    if {run.conclusion for run in runs} != {Conclusion.SHOWN}:
        odd = next(run for run in runs if run.conclusion is not Conclusion.SHOWN)
        story = "--story transactions " if odd.scenario.is_timed else ""
        if odd.scenario.outage:
            story = "--story failover "
        return [(f"scripts/demo {story}{odd.scenario.slug}", "runs the first odd scenario once more, alone")]
    steps = [("scripts/demo up", "opens the shop in your browser: choose a guard, and send 50 buyers")]
    if not any(run.scenario.is_timed for run in runs):
        steps.append(
            ("scripts/demo --story transactions", "shows when a lock alone is not enough: the fence")
        )
        other = "zookeeper" if runs[0].backend == "redis" else "redis"
        steps.append((f"scripts/demo --backend {other}", f"repeats this with locks in {other}"))
    steps.append(
        ("scripts/demo --matrix", "proves each lock service, database and framework in seven minutes")
    )
    return steps


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
