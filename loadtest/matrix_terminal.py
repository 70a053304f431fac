"""The matrix at the terminal: progress while it runs, a table at the end."""

from __future__ import annotations

import time

from demo_shop.orders import Ledger
from loadtest.crowd import Crowd
from loadtest.matrix import Matrix, Row, conclusions
from loadtest.run import Run
from loadtest.terminal import Teller, aligned, fold
from loadtest.verdict import Conclusion
from loadtest.words import why_not

#: How many doubts the terminal is told: where all is odd, there are hundreds.
DOUBTS = 20
VISITS = {"buy": "one unit", "cart": "a cart"}
#: The table's; the progress and the report say it in full.
MARKS = {Conclusion.SHOWN: "", Conclusion.WRONG: "! ", Conclusion.INCONCLUSIVE: "? "}
LEGEND = {Conclusion.WRONG: "!: WRONG, a unit was sold twice", Conclusion.INCONCLUSIVE: "?: INCONCLUSIVE"}


class MatrixProgress(Teller):
    """One line for each cell."""

    def open(self, matrix: Matrix, crowd: Crowd) -> None:
        self.number, self.of, self.began = 0, len(matrix), time.monotonic()
        databases = ", ".join(dict.fromkeys(row.database for row in matrix.rows))
        self.say(f"Lock services: {', '.join(matrix.backends)}. Databases: {databases}.", last=True)
        self.say(
            f"{len(matrix)} sales, {crowd.requests} requests each, before two instances: "
            "with a process lock in each, which must oversell, and with each lock service, which must not.",
            last=True,
        )

    def starting(self, what: str) -> None:
        if self.live:
            self.say(f"Starting {what} …")

    def begin(self, row: Row, backend: str | None) -> None:
        self.number += 1
        what = (row.database, row.framework, VISITS[row.visit.slug], backend or "process locks")
        self.head = f"[{self.number}/{self.of}] {', '.join(what)}"

    def selling(self, ledger: Ledger) -> None:
        if self.live:
            self.say(f"{self.head}: {ledger.sold} sold, {ledger.stock} left …")

    def end(self, run: Run) -> None:
        seconds = time.monotonic() - self.began
        self.say(f"{self.head}: {outcome(run)}   ({seconds // 60:.0f}:{seconds % 60:02.0f})", last=True)


def outcome(run: Run) -> str:
    """What became of one sale: in capitals where it is not what it must be."""
    sold = f"{run.figures.sold} of {run.figures.initial}"
    match run.conclusion:
        case Conclusion.SHOWN:
            return f"{run.verdict.outcome} {sold}"
        case Conclusion.WRONG:
            return f"WRONG {sold}"
        case Conclusion.INCONCLUSIVE:
            return f"INCONCLUSIVE {sold}"


def cell(run: Run | None) -> str:
    """How many units were sold in it, marked where that is not what it must be."""
    if run is None:
        return "NOT RUN"
    return f"{MARKS[run.conclusion]}{run.figures.sold}"


def table(matrix: Matrix) -> str:
    """A table for each visit: how many units there were, and how many each sale sold."""
    tables = []
    for visit in dict.fromkeys(row.visit.slug for row in matrix.rows):
        rows = [("database", "framework", "units", "control", *matrix.backends)]
        for row in matrix.rows:
            if row.visit.slug == visit:
                runs = matrix.runs(row)
                units = next((str(run.figures.initial) for run in runs if run), "")
                rows.append((row.database, row.framework, units, *map(cell, runs)))
        heading = f"Units sold where each buyer takes {VISITS[visit]} at a time:"
        tables.append(f"{heading}\n\n{aligned(rows, '<<>' + '>' * (len(rows[0]) - 3))}")
    return "\n\n".join(tables)


def in_all(matrix: Matrix) -> str:
    found = conclusions(matrix)
    if Conclusion.WRONG in found:
        return "WRONG: a shop that was locked sold units twice."
    if Conclusion.INCONCLUSIVE in found:
        return "INCONCLUSIVE: at least one cell did not go as expected, so the matrix is not proven."
    return (
        f"Every cell went as expected: {len(matrix.cells)} sales with the distributed lock were exact, and "
        f"the {len(matrix.controls)} controls, which differ from them only in the guard, oversold."
    )


def doubts(matrix: Matrix) -> list[str]:
    """Why a cell is not what it must be."""
    return [
        f"{row.database}, {row.framework}, {VISITS[row.visit.slug]}, {backend or 'control'}: {reason}"
        for row, backend, run in matrix
        for reason in why_not(run)
    ]


def summary(matrix: Matrix) -> str:
    odd = [f"  {doubt}" for doubt in doubts(matrix)]
    if len(odd) > DOUBTS:
        odd[DOUBTS:] = [f"  … and {len(odd) - DOUBTS} more: the report has them all."]
    legend = [said for conclusion, said in LEGEND.items() if conclusion in conclusions(matrix)]
    folded = [fold(line, indent=4) for line in odd]
    return "\n".join([table(matrix), "", *legend, *[""] * bool(legend), fold(in_all(matrix)), *folded])
