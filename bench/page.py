"""Write the figures of runs into the pages docs/explanation/performance*.md; none is typed by hand.

The figures are between two comments, ``<!-- bench ... -->`` and ``<!-- bench end -->``. The first one says
which figures:

    about                                  machine and versions
    targets                                how many targets were met, and the figures of each missed one
    contended 0: rate/redis-py p99 jain    these measures, from table 0 of the row "contended". The first one
                                           is shown with its spread. A measure with a slash is shown as the
                                           ratio to that peer, whose spaces are written as _
    beside distlock, redis-py: contended 0 p99; burst 0 makespan
                                           the medians of these contestants, one line for each measure
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.crew import BenchError
from bench.figures import MEASURES, Figures, Result, Table
from bench.report import WHY, KeptRun, not_judged
from bench.rows import ROWS

ROOT = Path(__file__).resolve().parents[1]
#: All pages with figures. `report.WHY` is the one with the targets.
PAGES = tuple(ROOT / "docs/explanation" / f"{name}.md" for name in ("performance", "performance-figures"))
PAGES += (ROOT / WHY,)
BLOCK = re.compile(
    r"(?P<begin><!-- bench (?P<what>(?!end)[^\n]*?) -->)\n.*?(?P<end><!-- bench end -->)", re.DOTALL
)
WANTED = re.compile(r"(?P<row>[\w-]+) (?P<number>\d+): (?P<measures>.+)")
BESIDE = re.compile(r"beside (?P<who>[^:]+): (?P<measures>.+)")
ORDINALS = ("first", "second", "third", "fourth", "fifth")


def filled(page: str, runs: Sequence[KeptRun]) -> str:
    """Return *page* with the figures of *runs*. Raise `BenchError` if they lack a figure."""

    def fill(block: re.Match[str]) -> str:
        figures = "\n".join(lines(block["what"], runs))
        return f"{block['begin']}\n\n{figures}\n\n{block['end']}"

    return BLOCK.sub(fill, page)


def lines(what: str, runs: Sequence[KeptRun]) -> Iterator[str]:
    if what == "about":
        return about(runs)
    if what == "targets":
        return targets(runs)
    if compared := BESIDE.fullmatch(what):
        return beside(runs, compared["who"].split(", "), compared["measures"].split("; "))
    if not (wanted := WANTED.fullmatch(what)):
        raise BenchError(f"A page has the comment <!-- bench {what} -->. See: python -m pydoc bench.page")
    return figures(pooled_of(runs, wanted["row"], wanted["number"]), wanted["measures"].split())


def about(runs: Sequence[KeptRun]) -> Iterator[str]:
    """Yield what the figures depend on, but not how long each row took, which no reader needs."""
    for name in runs[0].about:
        if name == "took":
            continue
        yield f"* {name}: {'; '.join(dict.fromkeys(run.about.get(name, '') for run in runs))}"


def targets(runs: Sequence[KeptRun]) -> Iterator[str]:
    """Yield the missed targets. Raises `BenchError` if the runs have different rows or peers."""
    found = [[(table, one) for table in run.tables for one in table.results()] for run in runs]
    if len({tuple(str(one.target) for _, one in each) for each in found}) != 1:
        raise BenchError("The runs have not the same targets.")
    met = [f"{sum(one.met for _, one in each)} of {len(each)}" for each in found]
    yield f"Targets that were met: {', then '.join(met)}."
    yield ""
    if left_out := not_judged(runs[0].tables):
        yield left_out
        yield ""
    yield f"| target | {' | '.join(f'{name} run' for name in ORDINALS[: len(runs)])} | |"
    yield f"|---|{'--:|' * len(runs)}---|"
    shown = None
    for same in zip(*found, strict=True):
        table, results = same[0][0], [one for _, one in same]
        if all(one.met for one in results):
            continue
        if table is not shown:
            yield f"| **`{table.row}`: {table.title}** |{' |' * (len(runs) + 1)}"
            shown = table
        cells = [one.shown_judged for one in results]
        yield f"| {results[0].target} | {' | '.join(cells)} | {judged(results)} |"


def judged(results: Sequence[Result]) -> str:
    """Return in how many of the runs a target was missed, with a link to the reason."""
    missed = [result for result in results if not result.met]
    words = "missed" if len(missed) == len(results) else f"missed in {len(missed)} of {len(results)}"
    return f"**[{words}](#{missed[0].target.why})**" if missed[0].target.why else f"**{words}**"


def table_of(run: KeptRun, row: str, number: int) -> Table:
    tables = [table for table in run.tables if table.row == row]
    if len(tables) <= number:
        raise BenchError(f"A page shows table {number} of {row}, which was not measured. Run: scripts/bench")
    return tables[number]


def pooled_of(runs: Sequence[KeptRun], row: str, number: str) -> Table:
    return pool([table_of(run, row, int(number)) for run in runs])


def pool(tables: Sequence[Table]) -> Table:
    """Return one table with the rounds of all *tables*, for the contestants that are in each of them."""
    rounds: dict[str, list[Figures]] = {
        name: [figures for table in tables for figures in table.rounds[name]]
        for name in tables[0].rounds
        if all(name in table.rounds for table in tables)
    }
    return Table(tables[0].row, tables[0].title, rounds, tables[0].measures)


def figures(table: Table, measures: Sequence[str]) -> Iterator[str]:
    yield f"| | {' | '.join(map(heading, measures))} |"
    yield f"|---|{'--:|' * len(measures)}"
    for contestant in table.rounds:
        cells = [cell(table, contestant, each, number == 0) for number, each in enumerate(measures)]
        yield f"| {contestant} | {' | '.join(cells)} |"


def beside(runs: Sequence[KeptRun], who: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """Yield one line with the medians of *who* for each of *wanted*, which is "row number measure"."""
    yield f"| | {' | '.join(who)} |"
    yield f"|---|{'--:|' * len(who)}"
    for row, number, measure in map(str.split, wanted):
        table = pooled_of(runs, row, number)
        if missing := [each for each in who if each not in table.rounds]:
            raise BenchError(f"{', '.join(missing)} not measured in {row}. Run: scripts/bench")
        cells = [cell(table, each, measure, spread=False) for each in who]
        yield f"| {table.title}: **{heading(measure)}** | {' | '.join(cells)} |"


def parts(measure: str) -> tuple[str, str]:
    """Split *measure* into its name and the peer to compare with; "" if there is none."""
    name, _, peer = measure.partition("/")
    return name, peer.replace("_", " ")


def heading(measure: str) -> str:
    name, peer = parts(measure)
    if name not in MEASURES:
        raise BenchError(f"{name} is none of {', '.join(MEASURES)}.")
    return f"{MEASURES[name].heading.split(', ')[0]}, times {peer}'s" if peer else MEASURES[name].heading


def cell(table: Table, contestant: str, measure: str, spread: bool) -> str:
    """Return the median of the rounds, and the smallest and largest if *spread*; "" without a figure."""
    name, peer = parts(measure)
    if not peer:
        found = table.spread(contestant, name)
        shown = [MEASURES[name].shown(one) for one in found] if found else []
    elif contestant == peer:
        shown, spread = ["1"], False
    elif peer in table.rounds and len(table.rounds[peer]) == len(table.rounds[contestant]):
        pairs = zip(table.rounds[contestant], table.rounds[peer], strict=True)
        ratios = [mine[name] / theirs[name] for mine, theirs in pairs]
        shown = [f"{one:,.2g}" if one < 10 else f"{one:,.0f}" for one in of(ratios)]
    else:
        shown = []
    return f"{shown[0]} ({shown[1]} to {shown[2]})" if spread and shown else shown[0] if shown else ""


def of(ratios: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(ratios), min(ratios), max(ratios)


def write(runs: Sequence[KeptRun]) -> None:
    """Write all pages. Raise `BenchError` if a run lacks a row, or has a void one."""
    for run in runs:
        if left_out := set(ROWS) - {table.row for table in run.tables}:
            raise BenchError(f"The pages have all rows, and {', '.join(sorted(left_out))} were not measured.")
        for table in run.tables:
            if table.violations:
                raise BenchError(f"{table.row} is void, and stands on no page. {table.violations[0]}")
    made = {page: filled(page.read_text("utf-8"), runs) for page in PAGES}
    for page, text in made.items():
        page.write_text(text, encoding="utf-8")
