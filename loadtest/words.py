"""The story in plain sentences: what happened in a run, what it means, what all runs say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import quantiles

from loadtest.run import Run
from loadtest.scenario import Outcome
from loadtest.verdict import SOLD_OUT, Conclusion

WHY = {
    "one-unlocked": "Nothing makes one buyer wait for another. "
    "Many read the same stock, and each of them writes it back minus one.",
    "one-process": "The process lock lets one buyer at a time read and write the stock. "
    "With one instance that is enough.",
    "two-process": "Each instance has a process lock of its own, and knows nothing of the other's. "
    "So two buyers are inside at once.",
    "two-distributed": "Both instances ask the same distributed lock. "
    "One buyer at a time is inside, whichever instance serves him.",
    "mixed-process": "Each instance has a process lock of its own, whichever framework it is written in. "
    "So two buyers are inside at once.",
    "mixed-distributed": "The distributed lock has the same name in Django and in Flask, "
    "so a buyer at one keeps out the buyers at the other.",
}


def what_happened(run: Run) -> str:
    seen = run.figures
    if run.verdict.outcome is Outcome.OVERSOLD:
        unit, times = most_sold_unit(run)
        left = (
            f"The shop believes that {seen.final} are left."
            if seen.final
            else "The shop believes that it sold out."
        )
        return (
            f"{seen.orders} orders were confirmed for {seen.initial} units. {left} "
            f"Unit {unit} alone was sold {times} times."
        )
    if run.verdict.outcome is Outcome.EXACT:
        return (
            f"{seen.orders} orders were confirmed for {seen.initial} units. "
            f"{seen.answers.get(SOLD_OUT, 0)} purchases were told “sold out”. "
            "No unit was sold twice, none was left."
        )
    return (
        f"{seen.orders} orders were confirmed for {seen.initial} units; {seen.final} are left. "
        "This run proves nothing."
    )


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
    return (
        "Every scenario went as expected: a lock that all instances share keeps the shop from overselling, "
        "and nothing less does."
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
