"""The output at the terminal: progress while a story runs, and a table at the end."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from demo_shop.configuration import IN_THE_DATABASE, Configuration
from demo_shop.sale import Ledger
from loadtest.report import words
from loadtest.run import SaleRun
from loadtest.scenario import BuyerCrowd, Scenario, Visit
from loadtest.servers.databases import DATABASES, kind_of
from loadtest.verdict import Conclusion

MARKS = {Conclusion.SHOWN: "as expected", Conclusion.WRONG: "WRONG", Conclusion.INCONCLUSIVE: "INCONCLUSIVE"}
INDENT = 6
SERVICES = {
    "file": "file, a directory of this host",
    "redis": "redis",
    "mysql": "mariadb, its locks of GET_LOCK",
    "postgresql": "postgresql, its advisory locks",
    "redlock": "redlock, the majority of five redis servers",
    "sentinel": "redis with two replicas, and three sentinels",
    "zookeeper": "zookeeper",
    "cluster": "redis cluster, three primaries with a replica each",
    IN_THE_DATABASE: "none, a row of the database is the lock",
}
COLUMNS = ("scenario", "sold", "of", "left", "must be", "is", "")
ALIGN = "<>>><<<"
#: The heading of a column before the last one, which is shown if lock services were away.
AWAY = "away"


#: The columns of the narrowest usual terminal.
WIDTH = 80


def fold(text: str, indent: int = 0) -> str:
    """Fold *text* into lines of `WIDTH`, all but the first of each paragraph indented. Keep paths whole."""
    return "\n".join(
        textwrap.fill(
            line, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        for line in text.split("\n")
    )


def crop(text: str) -> str:
    """Crop *text* to one line, because only one line can be rewritten in place."""
    return text if len(text) < WIDTH else f"{text[: WIDTH - 2]}…"


class Teller:
    """Writes lines to *out*. On a terminal, progress is rewritten in place."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self.out, self.live = out, out.isatty()

    def say(self, text: str, last: bool = False, indent: int = 0) -> None:
        if self.live:
            self.out.write(f"\r\x1b[K{fold(text, indent)}\n" if last else f"\r\x1b[K{crop(text)}")
        else:
            self.out.write(f"{fold(text, indent)}\n")
        self.out.flush()


class SaleProgress(Teller):
    """Writes a heading for each scenario, and its progress below."""

    def open(
        self, crowd: BuyerCrowd, visit: Visit, shop: Configuration, backend: str | None, database: str
    ) -> None:
        self.say(where(backend, database), last=True)
        self.say(
            f"A shop has {words.shelf(visit.products, shop.stock)}. {crowd.users} buyers, all starting "
            f"together, come {crowd.purchases} times each. Each time a buyer {visit.does}.",
            last=True,
        )

    def begin(self, number: int, of: int, scenario: Scenario, shop: Configuration) -> None:
        self.initial = shop.stock * shop.products
        self.say(f"[{number}/{of}] {scenario.slug}: {scenario.title}", last=True, indent=INDENT)

    def starting(self, scenario: Scenario) -> None:
        self.tell(f"starting {' and '.join(scenario.instances)} behind nginx …")

    def selling(self, ledger: Ledger) -> None:
        if self.live:
            self.tell(f"{ledger.sold} of {self.initial} sold, stock {ledger.stock} …")

    def end(self, run: SaleRun) -> None:
        self.tell(
            f"{run.verdict.outcome} after {run.duration:.1f} s: "
            f"sold {run.figures.sold} of {run.figures.initial}, stock {run.figures.final}.",
            last=True,
        )

    def tell(self, text: str, last: bool = False) -> None:
        self.say(" " * INDENT + text, last=last, indent=INDENT)


def where(backend: str | None, database: str) -> str:
    """Return a line that names the lock service, unless *backend* is None, and the database."""
    given = "" if database in DATABASES else ", a server of yours"
    service = f"Lock service: {SERVICES[backend]}. " if backend else ""
    return f"{service}Database: {kind_of(database)}{given}."


def table(runs: Sequence[SaleRun]) -> str:
    rows = [COLUMNS, *map(row, runs)]
    if not any(run.figures.absence for run in runs):
        return aligned(rows, ALIGN)
    away = [AWAY, *map(words.away, runs)]
    longer = [(*most, seconds, mark) for (*most, mark), seconds in zip(rows, away, strict=True)]
    return aligned(longer, f"{ALIGN[:-1]}><")


def row(run: SaleRun) -> tuple[str, ...]:
    return (
        run.scenario.slug,
        str(run.figures.sold),
        str(run.figures.initial),
        str(run.figures.final),
        str(run.scenario.must_be),
        str(run.verdict.outcome),
        MARKS[run.conclusion],
    )


def aligned(rows: Sequence[tuple[str, ...]], align: str) -> str:
    """Return the rows as a table, with a line below the first one."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    lines = [
        "  ".join(f"{cell:{to}{width}}" for cell, to, width in zip(row, align, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)


def summary(runs: Sequence[SaleRun]) -> str:
    told = [f"{run.scenario.title}: {words.what_happened(run)} {words.told(run)}".strip() for run in runs]
    doubts = [f"  {run.scenario.title}: {reason}" for run in runs for reason in words.why_not(run)]
    folded = [fold(line, indent=4) for line in doubts]
    return "\n".join([*map(fold, told), "", table(runs), "", fold(words.in_all(runs)), *folded])
