"""The rows: one file for each, by its name. `measure` gives its tables, one for each setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.bench import Bench
from bench.rows import between, uncontended
from bench.table import Table

#: In the order of the report.
ROWS: dict[str, Callable[[Bench], Iterator[Table]]] = {
    "uncontended": uncontended.measure,
    "between": between.measure,
}
