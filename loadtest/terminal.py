"""What the person at the terminal sees: progress while it runs, a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from demo_shop.configuration import Configuration
from demo_shop.ledger import Ledger
from loadtest import timeline_words, words
from loadtest.run import Crowd, Run
from loadtest.scenario import Scenario
from loadtest.verdict import Conclusion
from loadtest.visit import Visit

MARKS = {Conclusion.SHOWN: "as expected", Conclusion.WRONG: "WRONG", Conclusion.INCONCLUSIVE: "INCONCLUSIVE"}
COLUMNS = ("scenario", "sold", "of", "left", "must be", "is", "")
ALIGN = "<>>><<<"


class Teller:
    """Lines at the terminal, rewritten in place where a person watches."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self.out, self.live = out, out.isatty()

    def say(self, text: str, last: bool = False) -> None:
        if self.live:
            self.out.write(f"\r\x1b[K{text}" + "\n" * last)
        else:
            self.out.write(f"{text}\n")
        self.out.flush()


class Progress(Teller):
    """One line for each scenario."""

    def open(self, crowd: Crowd, visit: Visit, shop: Configuration) -> None:
        self.say(
            f"A shop has {words.shelf(visit.products, shop.stock)}. {crowd.users} buyers, all starting "
            f"together, come {crowd.purchases} times each. Each time a buyer {visit.does}.",
            last=True,
        )

    def begin(self, number: int, of: int, scenario: Scenario, shop: Configuration) -> None:
        self.head, self.initial = f"[{number}/{of}] {scenario.title}", shop.stock * shop.products
        self.say(f"{self.head}: starting {' and '.join(scenario.instances)} behind nginx …")

    def selling(self, ledger: Ledger) -> None:
        if self.live:
            self.say(f"{self.head}: {ledger.sold} of {self.initial} sold, stock {ledger.stock} …")

    def end(self, run: Run) -> None:
        self.say(
            f"{self.head}: {run.verdict.outcome} after {run.duration:.1f} s: "
            f"sold {run.figures.sold} of {run.figures.initial}, stock {run.figures.final}.",
            last=True,
        )


def table(runs: Sequence[Run]) -> str:
    rows = [COLUMNS] + [
        (
            run.scenario.title,
            str(run.figures.sold),
            str(run.figures.initial),
            str(run.figures.final),
            str(run.scenario.must_be),
            str(run.verdict.outcome),
            MARKS[run.conclusion],
        )
        for run in runs
    ]
    return aligned(rows, ALIGN)


def aligned(rows: Sequence[tuple[str, ...]], align: str) -> str:
    """The rows as a table, the first one above a line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    lines = [
        "  ".join(f"{cell:{to}{width}}" for cell, to, width in zip(row, align, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)


def summary(runs: Sequence[Run]) -> str:
    told = [
        f"{run.scenario.title}: {words.what_happened(run)} {timeline_words.told(run)}".strip() for run in runs
    ]
    doubts = [f"  {run.scenario.title}: {reason}" for run in runs for reason in words.why_not(run)]
    return "\n".join([*told, "", table(runs), "", words.in_all(runs), *doubts])
