"""The matrix: the proof for each lock service, database and framework. Its cells share their servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Protocol

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED
from demo_shop.orders import Ledger
from loadtest.crowd import Crowd
from loadtest.databases import open_database
from loadtest.lock_services import open_lock_service
from loadtest.run import Run, hold_sale
from loadtest.scenario import PAIRS, pair
from loadtest.stack import Stack
from loadtest.verdict import Conclusion
from loadtest.visit import Visit
from loadtest.workspace import workspace


@dataclass(frozen=True, slots=True)
class Row:
    """The cells that share a control: what differs between them is the lock service."""

    visit: Visit
    database: str
    framework: str


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[Row, ...]
    backends: tuple[str, ...]
    controls: dict[Row, Run] = field(default_factory=dict)
    cells: dict[tuple[Row, str], Run] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows) * (1 + len(self.backends))

    def runs(self, row: Row) -> list[Run | None]:
        """The control, and the cell of each lock service; None where it was not run."""
        return [self.controls.get(row), *(self.cells.get((row, backend)) for backend in self.backends)]

    def __iter__(self) -> Iterator[tuple[Row, str | None, Run]]:
        """Every cell that was run, row by row, each control first."""
        for row in self.rows:
            if row in self.controls:
                yield row, None, self.controls[row]
            for backend in self.backends:
                if (row, backend) in self.cells:
                    yield row, backend, self.cells[row, backend]


@dataclass(frozen=True, slots=True)
class Terms:
    """What all sales have in common."""

    shop: Configuration
    crowd: Crowd
    #: Of each product, and between read and write; None: as the visit says.
    stock: int | None = None
    pause: float | None = None


class Watcher(Protocol):
    """It is told how far the matrix is."""

    def starting(self, what: str) -> None: ...
    def begin(self, row: Row, backend: str | None) -> None: ...
    def selling(self, ledger: Ledger) -> None: ...
    def end(self, run: Run) -> None: ...


def plan(
    visits: Sequence[Visit], databases: Sequence[str], frameworks: Sequence[str], backends: Sequence[str]
) -> Matrix:
    rows = tuple(Row(*row) for row in product(visits, databases, frameworks))
    return Matrix(rows, tuple(backends))


def fill(matrix: Matrix, terms: Terms, watcher: Watcher) -> None:
    """Run every cell: one database at a time, and for each lock service one set of instances."""
    with ExitStack() as services:
        directory = services.enter_context(workspace())
        # The control asks no lock service; a directory costs nothing.
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
    rows: Sequence[Row],
    lock: tuple[str | None, str],
    database: str,
    terms: Terms,
    watcher: Watcher,
) -> None:
    """The cells that can share instances: all that have the same database and lock service."""
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
    matrix: Matrix, row: Row, backend: str | None, stack: Stack, terms: Terms, watcher: Watcher
) -> Run:
    slug, instances = f"{row.framework}-{row.database}", PAIRS[row.framework]
    unlocked, locked = pair(slug, f"{row.framework} on {row.database}", instances, "process", DISTRIBUTED)
    stack.shop = row.visit.furnish(stack.shop, terms.stock, terms.pause)
    stack.restock()
    control = matrix.controls[row].conclusion if backend else None
    front, scenario = stack.front_for(instances), locked if backend else unlocked
    run = hold_sale(stack, front, scenario, row.visit, terms.crowd, control, watcher.selling)
    return replace(run, backend=backend or "", database=row.database)


def instances_for(frameworks: set[str]) -> tuple[str, ...]:
    """The fewest instances that can serve all of *frameworks*, two for each sale."""
    pairs = [PAIRS[framework] for framework in frameworks]
    return tuple(
        name for name in ("django", "flask") for _ in range(max(names.count(name) for names in pairs))
    )


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def conclusions(matrix: Matrix) -> list[Conclusion]:
    """Of all cells; one that was not run is no proof."""
    found = [run.conclusion for _, _, run in matrix]
    return found + [Conclusion.INCONCLUSIVE] * (len(matrix) - len(found))
