"""What the report says beside its plots: the result, the code that differs, a conclusion, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from demo_shop.choices import ASYNC_LINES, QUART_LINES
from demo_shop.guards import DISTRIBUTED, GUARDS
from loadtest import words
from loadtest.run import Run
from loadtest.scenario import QUART, Outcome
from loadtest.verdict import Conclusion

#: Beside a guard that is not enough: what it must oversell for.
LACKING = {
    "none": "without a lock",
    "process": "with a lock in each instance alone",
    "plain": "with a lock that ends before COMMIT",
    DISTRIBUTED: "without the fence",
}
FENCE = 'DISTLOCK["default"]["FENCE"] = True'


def result(run: Run) -> str:
    """What came of it, and whether that is right: one mark."""
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


def code(run: Run) -> list[str]:
    """The lines that differ from the other scenarios."""
    guard = run.scenario.guard
    own = ASYNC_LINES if run.scenario.is_async else {}
    if run.scenario.instances[0] == QUART:
        own = QUART_LINES
    return [own.get(guard, GUARDS[guard].line), *[FENCE] * run.scenario.fence]


def of_all_sales(runs: Sequence[Run]) -> str:
    over = [run for run in runs if run.figures.sold > run.figures.initial]
    if not over:
        return "No sale sold more than there was."
    exact = [run for run in runs if run.verdict.outcome is Outcome.EXACT]
    said = f"{len(over)} of {len(runs)} sales sold units that do not exist"
    return f"{said}; {len(exact)} sold all units, and each of them once."


def of_sale(run: Run) -> str:
    """What its two lines show."""
    seen = run.figures
    taken = seen.initial - seen.final
    if seen.sold > taken:
        return (
            f"The two lines part: {seen.sold} units were sold, and only {taken} left the stock, "
            "because buyers overwrote each other's change."
        )
    if seen.sold > seen.initial:
        return f"The sale goes on past its {words.units(seen.initial)}, to {seen.sold}."
    return f"The lines mirror each other: each unit that was sold left the stock, {seen.sold} in all."


def of_times(runs: Sequence[Run]) -> str:
    """What the guard costs, beside the same shop without it."""
    guarded = [run for run in runs if run.scenario.control]
    if not guarded:
        return ""
    run = guarded[-1]
    control = next((one for one in runs if one.scenario.slug == run.scenario.control), None)
    waited = words.percentile(words.waits(run), 50)
    said = f"{capital(run.scenario.title)}: half of the purchases waited {waited:.0f} ms or less for the lock"
    took = f"the whole sale took {run.duration:.1f} s"
    if control is None:
        return f"{said}, and {took}."
    return f"{said}, and {took}; without that guard it took {control.duration:.1f} s."


def next_steps(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """A command, and what it shows."""
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
