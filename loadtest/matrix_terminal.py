"""The matrix at the terminal: progress while it runs, a table at the end."""

from __future__ import annotations

import time

from demo_shop.ledger import Ledger
from loadtest.matrix import Matrix, Row, conclusions
from loadtest.run import Crowd, Run
from loadtest.terminal import Teller, aligned
from loadtest.verdict import Conclusion
from loadtest.words import why_not

#: How many doubts the terminal is told: where all is odd, there are hundreds.
DOUBTS = 20
VISITS = {"buy": "one unit", "cart": "a cart"}


class MatrixProgress(Teller):
    """One line for each cell."""

    def open(self, matrix: Matrix, crowd: Crowd) -> None:
        self.number, self.of, self.began = 0, len(matrix), time.monotonic()
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
        self.say(f"{self.head}: {cell(run)}   ({seconds // 60:.0f}:{seconds % 60:02.0f})", last=True)


def cell(run: Run | None) -> str:
    """What became of one cell: in capitals where it is not what it must be."""
    if run is None:
        return "NOT RUN"
    sold = f"{run.figures.sold} of {run.figures.initial}"
    match run.conclusion:
        case Conclusion.SHOWN:
            return f"{run.verdict.outcome} {sold}"
        case Conclusion.WRONG:
            return f"WRONG {sold}"
        case Conclusion.INCONCLUSIVE:
            return f"INCONCLUSIVE {sold}"


def table(matrix: Matrix) -> str:
    rows = [("a buyer takes", "database", "framework", "control", *matrix.backends)]
    rows += [
        (VISITS[row.visit.slug], row.database, row.framework, *map(cell, matrix.runs(row)))
        for row in matrix.rows
    ]
    return aligned(rows, "<" * len(rows[0]))


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
    return "\n".join([table(matrix), "", in_all(matrix), *odd])
