"""The story of a rush: sales of one hot product, held one after the other in one stack, and their paces."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from demo_shop.configuration import Configuration
from loadtest.report import words
from loadtest.report.terminal import aligned, fold
from loadtest.run import SaleRun, hold_sale
from loadtest.scenario import BuyerCrowd, Outcome, Scenario
from loadtest.servers.databases import POSTGRESQL_OPTIONS, running_postgresql
from loadtest.servers.lock_services import open_lock_service
from loadtest.servers.processes import workspace
from loadtest.stack import ROOT, Stack
from loadtest.stories import RUSH_COMMIT_PAUSE, RUSH_CONTROL, RUSH_WAYS, rush_visit
from loadtest.verdict import SOLD, Conclusion


@contextmanager
def slow_postgresql() -> Iterator[str]:
    """Start a server in which each COMMIT takes `RUSH_COMMIT_PAUSE` seconds longer, as on a real disk.

    PostgreSQL waits for ``commit_delay`` while the rows are still locked, once for each COMMIT. Other COMMITs
    that come meanwhile are written together with it, as on a disk.
    """
    slow = {"fsync": "on", "commit_siblings": "0", "commit_delay": f"{RUSH_COMMIT_PAUSE * 1e6:.0f}"}
    with running_postgresql(POSTGRESQL_OPTIONS | slow) as url:
        yield url


def hold_sales(
    scenarios: Sequence[Scenario],
    backend: str,
    shop: Configuration,
    crowd: BuyerCrowd,
    begin: Callable[[int, int, Scenario, Configuration], None],
    end: Callable[[SaleRun], None],
) -> list[SaleRun]:
    """Run a sale for each of *scenarios*, and return the runs. *begin*, *end*: called around each sale.

    Nothing counts the orders during a sale, because that would slow the sale down.
    """
    runs: dict[str, SaleRun] = {}
    with (
        workspace() as directory,
        open_lock_service(backend, directory) as lock,
        slow_postgresql() as database,
        Stack(scenarios[0].instances, shop, lock, database) as stack,
    ):
        for number, scenario in enumerate(scenarios, 1):
            begin(number, len(scenarios), scenario, shop)
            stack.restock()
            control = runs[scenario.control].conclusion if scenario.control else None
            run = hold_sale(stack, stack.front, scenario, rush_visit(scenario), crowd, control, progress=None)
            runs[scenario.slug] = replace(run, backend=backend, database="postgresql")
            end(runs[scenario.slug])
    return list(runs.values())


BATCHED, CONDITIONAL = "batched", "conditional"
HEADINGS = ("", "sold", "of", "left", "is", "sales/s", "half within", "p99", "")
MARKS = {Conclusion.SHOWN: "", Conclusion.WRONG: "WRONG", Conclusion.INCONCLUSIVE: "INCONCLUSIVE"}
COMMIT = f"{RUSH_COMMIT_PAUSE * 1000:g} ms"
#: How many sales a second are possible with a COMMIT each, if nothing else takes time.
MOST = f"{1 / RUSH_COMMIT_PAUSE:.0f}"


@dataclass(frozen=True, slots=True)
class SalePace:
    """How fast a sale was for the buyers who bought something."""

    #: Sales per second, from the opening until the last answer.
    sales: float
    #: Milliseconds until the answer: the median.
    half: float
    #: Milliseconds until the answer: the 99th percentile.
    late: float


def pace(run: SaleRun) -> SalePace:
    sold = [row for row in run.rows if row["status"] == SOLD]
    seconds = max((row["at"] + row["ms"] / 1000 for row in sold), default=0.0)
    times = [row["ms"] for row in sold]
    rate = len(sold) / seconds if seconds else 0.0
    return SalePace(rate, words.percentile(times, 50), words.percentile(times, 99))


def title(run: SaleRun) -> str:
    return RUSH_WAYS[run.scenario.slug].title


def why(run: SaleRun) -> str:
    return RUSH_WAYS[run.scenario.slug].why


def source(run: SaleRun) -> str:
    """Return the view's code, in the framework of the first instance."""
    return code_of_view(run.scenario.instances[0], run.scenario.slug)


def order(run: SaleRun) -> str:
    """Return the code of the function that all views call at their end."""
    return code_of_view(run.scenario.instances[0], "order")


def code_of_view(framework: str, name: str) -> str:
    """Return the source code of a function of the shop's ``rush.py``, for the report."""
    text = (ROOT / "demo_shop" / f"{framework}_shop" / "rush.py").read_text("utf-8")
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}[name]
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : found.end_lineno])


def compared(runs: Sequence[SaleRun]) -> list[SaleRun]:
    """Return all runs but the control, whose pace means nothing, because it sells units twice."""
    return [run for run in runs if run.scenario.slug != RUSH_CONTROL]


def fastest(runs: Sequence[SaleRun]) -> float:
    """Return the highest pace, sales per second, which fills the plot."""
    return max((pace(run).sales for run in compared(runs)), default=0.0) or 1.0


def in_all(runs: Sequence[SaleRun]) -> str:
    conclusions = [run.conclusion for run in runs]
    if Conclusion.WRONG in conclusions:
        return "WRONG: a shop that was guarded sold units twice."
    if Conclusion.INCONCLUSIVE in conclusions:
        return "INCONCLUSIVE: at least one sale did not go as expected, so its figures say nothing."
    by_slug = {run.scenario.slug: run for run in runs}
    said = "Each way sold every unit once"
    if not {BATCHED, CONDITIONAL} <= by_slug.keys():
        return f"{said}."
    ratio = pace(by_slug[BATCHED]).sales / pace(by_slug[CONDITIONAL]).sales
    return (
        f"{said}. With a COMMIT of {COMMIT} the batches sold {ratio:.1f} times as many a second as the "
        "database's own conditional UPDATE."
    )


def of_control(run: SaleRun) -> str:
    """Say what the same shop does without a guard."""
    if run.verdict.outcome is not Outcome.OVERSOLD:
        return "Without any guard the same shop did not oversell, so the figures of the others say nothing."
    seen = run.figures
    return (
        f"Without any guard the same shop confirmed {seen.sold} orders for {seen.initial} units: "
        "that is what the others keep from happening, and it is no pace to compare with."
    )


def row(run: SaleRun) -> tuple[str, ...]:
    """Return a row of the table, under `HEADINGS`."""
    seen, measured = run.figures, pace(run)
    times = (f"{measured.sales:.0f}", f"{measured.half:.0f} ms", f"{measured.late:.0f} ms")
    shown = times if run.scenario.slug != RUSH_CONTROL else ("",) * len(times)
    counts = (str(seen.sold), str(seen.initial), str(seen.final))
    return (title(run), *counts, str(run.verdict.outcome), *shown, MARKS[run.conclusion])


def summary(runs: Sequence[SaleRun]) -> str:
    """Return what the terminal shows."""
    doubts = [f"  {title(run)}: {reason}" for run in runs for reason in words.why_not(run)]
    folded = [fold(line, indent=4) for line in doubts]
    table = aligned([HEADINGS, *map(row, runs)], "<>>><>>><")
    return "\n".join([table, "", fold(in_all(runs)), *folded])
