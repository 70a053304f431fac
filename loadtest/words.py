"""The story in plain sentences: what happened in a run, what it means, what all runs say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import quantiles

from loadtest.run import Run
from loadtest.scenario import Outcome
from loadtest.verdict import Conclusion

WHY = {
    "one-unlocked": "Nothing makes one buyer wait for another. "
    "Many read the same stock, and each of them writes it back minus one.",
    "one-process": "A lock inside the process lets one buyer at a time read and write the stock. "
    "With one process that is enough.",
    "two-process": "Each process has a lock of its own, and knows nothing of the other's. "
    "So two buyers are inside at once.",
    "two-distributed": "Both processes ask the same lock service. "
    "One buyer at a time is inside, whichever instance serves him.",
    "mixed-process": "The control for the next run: the same two instances, each with a lock of its own.",
    "mixed-distributed": "The lock has the same name in Django and in Flask, "
    "so a buyer at one keeps out the buyers at the other.",
}


def what_happened(run: Run) -> str:
    seen = run.figures
    if run.verdict.outcome is Outcome.OVERSOLD:
        unit, buyers = most_sold_unit(run)
        left = (
            f"The shop believes that {seen.final} are left."
            if seen.final
            else "The shop believes that it sold out."
        )
        return (
            f"{seen.orders} buyers hold an order for one of {seen.initial} units. {left} "
            f"Unit {unit} alone was sold to {buyers} buyers."
        )
    if run.verdict.outcome is Outcome.EXACT:
        return (
            f"{seen.orders} orders for {seen.initial} units, and {seen.answers.get(409, 0)} buyers heard "
            "“sold out”. No unit was sold twice, none was left."
        )
    return f"{seen.orders} orders for {seen.initial} units; {seen.final} are left. This run proves nothing."


def what_it_means(run: Run) -> str:
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
        reasons += ("The shop did not oversell, so this run can't be the control of another.",)
    if run.logs:
        reasons += (f"The servers' logs are in {run.logs}.",)
    return reasons or ("The numbers are in order, but too close, or the control run showed nothing.",)


def in_all(runs: Sequence[Run]) -> str:
    conclusions = [run.conclusion for run in runs]
    if Conclusion.WRONG in conclusions:
        return "WRONG: a shop that was locked sold units twice."
    if Conclusion.INCONCLUSIVE in conclusions:
        return "INCONCLUSIVE: at least one scenario did not show what it must, so nothing is proven."
    return (
        "Every scenario showed what it must: without a shared lock the shop oversells, with it it does not."
    )


def most_sold_unit(run: Run) -> tuple[int, int]:
    return Counter(order.stock_seen for order in run.ledger.orders).most_common(1)[0]


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def latencies(run: Run) -> list[float]:
    return [row["ms"] for row in run.rows]


def waits(run: Run) -> list[float]:
    return [row["wait_ms"] for row in run.rows if row["wait_ms"] is not None]
