"""The matrix: a proof for each lock service, database and framework, with servers that its cells share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Protocol

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED
from demo_shop.sale import Ledger
from loadtest.report.terminal import Teller, aligned, fold
from loadtest.report.words import why_not
from loadtest.run import SaleRun, hold_sale
from loadtest.scenario import PAIRS, BuyerCrowd, Visit, pair
from loadtest.servers.databases import open_database
from loadtest.servers.lock_services import open_lock_service
from loadtest.servers.processes import workspace
from loadtest.stack import Stack
from loadtest.verdict import Conclusion


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """Cells with the same control, which differ only in the lock service."""

    visit: Visit
    database: str
    framework: str


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[MatrixRow, ...]
    backends: tuple[str, ...]
    controls: dict[MatrixRow, SaleRun] = field(default_factory=dict)
    cells: dict[tuple[MatrixRow, str], SaleRun] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows) * (1 + len(self.backends))

    def runs(self, row: MatrixRow) -> list[SaleRun | None]:
        """Return the runs of the control and of each lock service; None for those that were not run."""
        return [self.controls.get(row), *(self.cells.get((row, backend)) for backend in self.backends)]

    def __iter__(self) -> Iterator[tuple[MatrixRow, str | None, SaleRun]]:
        """Iterate over the cells that were run, row by row, each control first."""
        for row in self.rows:
            if row in self.controls:
                yield row, None, self.controls[row]
            for backend in self.backends:
                if (row, backend) in self.cells:
                    yield row, backend, self.cells[row, backend]


@dataclass(frozen=True, slots=True)
class MatrixTerms:
    """The settings that all sales share."""

    shop: Configuration
    crowd: BuyerCrowd
    #: Units of each product; None: as the visit says.
    stock: int | None = None
    #: Seconds between read and write; None: as the visit says.
    pause: float | None = None


class MatrixWatcher(Protocol):
    """An observer of the matrix's progress."""

    def starting(self, what: str) -> None: ...
    def begin(self, row: MatrixRow, backend: str | None) -> None: ...
    def selling(self, ledger: Ledger) -> None: ...
    def end(self, run: SaleRun) -> None: ...


def plan(
    visits: Sequence[Visit], databases: Sequence[str], frameworks: Sequence[str], backends: Sequence[str]
) -> Matrix:
    rows = tuple(MatrixRow(*row) for row in product(visits, databases, frameworks))
    return Matrix(rows, tuple(backends))


def fill(matrix: Matrix, terms: MatrixTerms, watcher: MatrixWatcher) -> None:
    """Run every cell, one database after the other, with one set of instances for each lock service."""
    with ExitStack() as services:
        directory = services.enter_context(workspace())
        # The control uses no lock service, but the instances need one in their settings.
        locks: dict[str | None, str] = {None: "file"}
        for backend in matrix.backends:
            watcher.starting(backend)
            (directory / backend).mkdir()
            locks[backend] = services.enter_context(open_lock_service(backend, directory / backend))
        for database in unique(row.database for row in matrix.rows):
            watcher.starting(database)
            with open_database(database, directory) as url:
                rows = [row for row in matrix.rows if row.database == database]
                for lock in locks.items():
                    fill_column(matrix, rows, lock, url, terms, watcher)


def fill_column(
    matrix: Matrix,
    rows: Sequence[MatrixRow],
    lock: tuple[str | None, str],
    database: str,
    terms: MatrixTerms,
    watcher: MatrixWatcher,
) -> None:
    """Run the cells with the same database and lock service, which share instances."""
    backend, url = lock
    watcher.starting(f"the instances for {rows[0].database} and {backend or 'the control'}")
    shop = replace(terms.shop, guard=DISTRIBUTED if backend else "process")
    with Stack(instances_for({row.framework for row in rows}), shop, url, database) as stack:
        for row in rows:
            watcher.begin(row, backend)
            run = fill_cell(matrix, row, backend, stack, terms, watcher)
            if backend:
                matrix.cells[row, backend] = run
            else:
                matrix.controls[row] = run
            watcher.end(run)


def fill_cell(
    matrix: Matrix,
    row: MatrixRow,
    backend: str | None,
    stack: Stack,
    terms: MatrixTerms,
    watcher: MatrixWatcher,
) -> SaleRun:
    slug, instances = f"{row.framework}-{row.database}", PAIRS[row.framework]
    unlocked, locked = pair(slug, f"{row.framework} on {row.database}", instances, "process", DISTRIBUTED)
    stack.shop = row.visit.furnish(stack.shop, terms.stock, terms.pause)
    stack.restock()
    control = matrix.controls[row].conclusion if backend else None
    front, scenario = stack.front_for(instances), locked if backend else unlocked
    run = hold_sale(stack, front, scenario, row.visit, terms.crowd, control, watcher.selling)
    return replace(run, backend=backend or "", database=row.database)


def instances_for(frameworks: set[str]) -> tuple[str, ...]:
    """Return the fewest instances that can serve all of *frameworks*, two for each sale."""
    pairs = [PAIRS[framework] for framework in frameworks]
    return tuple(
        name for name in ("django", "flask") for _ in range(max(names.count(name) for names in pairs))
    )


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def conclusions(matrix: Matrix) -> list[Conclusion]:
    """Return the conclusions of all cells; a cell that was not run is inconclusive."""
    found = [run.conclusion for _, _, run in matrix]
    return found + [Conclusion.INCONCLUSIVE] * (len(matrix) - len(found))


#: The terminal shows at most this many doubts, because there may be hundreds.
DOUBTS = 20
VISIT_WORDS = {"buy": "one unit", "cart": "a cart"}
#: Marks in the table. The progress and the report write the words in full.
MARKS = {Conclusion.SHOWN: "", Conclusion.WRONG: "! ", Conclusion.INCONCLUSIVE: "? "}
LEGEND = {Conclusion.WRONG: "!: WRONG, a unit was sold twice", Conclusion.INCONCLUSIVE: "?: INCONCLUSIVE"}


class MatrixProgress(Teller):
    """A line for each cell at the terminal."""

    def open(self, matrix: Matrix, crowd: BuyerCrowd) -> None:
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

    def begin(self, row: MatrixRow, backend: str | None) -> None:
        self.number += 1
        what = (row.database, row.framework, VISIT_WORDS[row.visit.slug], backend or "process locks")
        self.head = f"[{self.number}/{self.of}] {', '.join(what)}"

    def selling(self, ledger: Ledger) -> None:
        if self.live:
            self.say(f"{self.head}: {ledger.sold} sold, {ledger.stock} left …")

    def end(self, run: SaleRun) -> None:
        seconds = time.monotonic() - self.began
        self.say(f"{self.head}: {outcome(run)}   ({seconds // 60:.0f}:{seconds % 60:02.0f})", last=True)


def outcome(run: SaleRun) -> str:
    """Return the outcome of a sale, in capitals if it is not what it must be."""
    sold = f"{run.figures.sold} of {run.figures.initial}"
    match run.conclusion:
        case Conclusion.SHOWN:
            return f"{run.verdict.outcome} {sold}"
        case Conclusion.WRONG:
            return f"WRONG {sold}"
        case Conclusion.INCONCLUSIVE:
            return f"INCONCLUSIVE {sold}"


def cell(run: SaleRun | None) -> str:
    """Return how many units were sold in the cell, with a mark if the outcome is not what it must be."""
    if run is None:
        return "NOT RUN"
    return f"{MARKS[run.conclusion]}{run.figures.sold}"


def table(matrix: Matrix) -> str:
    """Return a table for each visit: how many units there were, and how many each sale sold."""
    tables = []
    for visit in dict.fromkeys(row.visit.slug for row in matrix.rows):
        rows = [("database", "framework", "units", "control", *matrix.backends)]
        for row in matrix.rows:
            if row.visit.slug == visit:
                runs = matrix.runs(row)
                units = next((str(run.figures.initial) for run in runs if run), "")
                rows.append((row.database, row.framework, units, *map(cell, runs)))
        heading = f"Units sold where each buyer takes {VISIT_WORDS[visit]} at a time:"
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
    """Return the reasons of all cells that are not what they must be."""
    return [
        f"{row.database}, {row.framework}, {VISIT_WORDS[row.visit.slug]}, {backend or 'control'}: {reason}"
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
