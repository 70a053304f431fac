"""A run: one row after the other. What was measured is kept after each table, however the run ends."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import kept
from bench.bench import Bench
from bench.crew import BenchError
from bench.progress import Progress
from bench.report import markdown
from bench.rows import ROWS
from bench.table import Table
from loadtest.servers.processes import StackError


@dataclass(slots=True)
class Run:
    bench: Bench
    rows: Sequence[str]
    #: What is measured on, and how thoroughly.
    setting: Mapping[str, str]
    #: Where the results are kept.
    folder: Path
    #: Shows a table to who started the run.
    show: Callable[[str], None]
    tables: list[Table] = field(default_factory=list)
    #: Whether something could not be measured.
    broken: bool = False
    #: Of the rows that are over, seconds.
    took: dict[str, float] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Raises nothing but what ends the process."""
        kept.clear(self.folder)
        progress = Progress(self.rows, self.bench)
        say(progress.before())
        for number, row in enumerate(self.rows):
            say(progress.at(number))
            began = time.monotonic()
            try:
                for table in ROWS[row](self.bench):
                    self._add(table)
            except Exception as error:  # What one row can't do costs no other.
                self.broken = True
                if not isinstance(error, BenchError | StackError):
                    traceback.print_exc()
                say(f"{row} could not be measured. {error}")
            self.took[row] = time.monotonic() - began
            progress.took(number, self.took[row])
        self._keep()

    @property
    def kept(self) -> str:
        """Where the results are, in words."""
        if not self.tables:
            return "Nothing was measured yet."
        return f"What was measured: {self.folder / kept.PAGE}, with the figures of each round in {kept.JSON}."

    @property
    def about(self) -> dict[str, str]:
        """What the figures depend on, and how long the rows took that are over."""
        rows = ", ".join(f"{row} {seconds:.0f}" for row, seconds in self.took.items())
        lasted = {"took": f"{sum(self.took.values()) / 60:.1f} min; in seconds: {rows}"} if rows else {}
        return {**self.setting, **lasted}

    def _add(self, table: Table) -> None:
        self.tables.append(table)
        self.broken |= bool(table.lost)
        self.show(markdown(table))
        self._keep()

    def _keep(self) -> None:
        whole = len(self.took) == len(self.rows) and not self.broken
        kept.write(self.folder, self.tables, self.about, whole)


def say(line: str) -> None:
    """To who watches, not into what is printed of the figures."""
    print(line, file=sys.stderr, flush=True)
