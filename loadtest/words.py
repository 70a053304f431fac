"""The story in plain sentences: what happened in a run, what it means, what all runs say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import quantiles

from demo_shop.guards import DISTRIBUTED, GUARDS
from loadtest.databases import kind_of
from loadtest.run import Run
from loadtest.scenario import Outcome
from loadtest.verdict import SOLD_OUT, Conclusion

#: Where the guard alone does not say it.
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


def why(run: Run) -> str:
    return WHY.get(run.scenario.slug) or GUARDS[run.scenario.guard].why


def units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def shelf(products: int, stock: int) -> str:
    return f"{units(stock)} of " + ("one product" if products == 1 else f"each of {products} products")


def what_happened(run: Run) -> str:
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


def away(run: Run) -> str:
    """How long the lock service gave nobody the lock; "" where nothing was done to it."""
    absence = run.figures.absence
    if absence is None:
        return ""
    return "for good" if absence.seconds is None else f"{absence.seconds:.2f} s"


def what_it_means(run: Run) -> str:
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


def why_not(run: Run) -> tuple[str, ...]:
    """The reasons where a scenario did not show what it must."""
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


def in_all(runs: Sequence[Run]) -> str:
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
        return (
            "Every scenario went as expected: a lock that all instances share keeps several of them "
            "from overselling, and nothing less does."
        )
    return "Every scenario went as expected: what all instances share keeps the shop from overselling."


def most_sold_unit(run: Run) -> tuple[int, int]:
    sales = Counter((order.product, order.stock_seen) for order in run.ledger.orders)
    (_, unit), times = sales.most_common(1)[0]
    return unit, times


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def latencies(run: Run) -> list[float]:
    return [row["ms"] for row in run.rows]


def waits(run: Run) -> list[float]:
    return [row["wait_ms"] for row in run.rows if row["wait_ms"] is not None]


def database(run: Run) -> str:
    return kind_of(run.database)
