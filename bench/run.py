"""A run: it measures one row after the other, estimates the time, and writes its results after each table."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench.bench import QUICK, WHOLE, Bench
from bench.crew import BenchError
from bench.figures import Table
from bench.report import JSON, PAGE, clear_run, markdown, write_run
from bench.rows import ROWS
from loadtest.servers.processes import StackError

#: The packages on whose versions the figures depend.
PACKAGES = (
    "redis",
    "hiredis",
    "python-redis-lock",
    "pottery",
    "sherlock",
    "django-redis",
    "kazoo",
    "psycopg",
    "Django",
    "Flask",
    "gunicorn",
)


@dataclass(slots=True)
class BenchRun:
    """The rows of one command, and their results so far."""

    bench: Bench
    rows: Sequence[str]
    #: The machine, the versions, and the thoroughness.
    setting: Mapping[str, str]
    #: The folder for the results.
    folder: Path
    #: Shows a table to the person who started the run.
    show: Callable[[str], None]
    tables: list[Table] = field(default_factory=list)
    #: Whether something could not be measured.
    broken: bool = False
    #: Seconds that each finished row took.
    took: dict[str, float] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Measure all rows. Raises only what ends the process: KeyboardInterrupt and SystemExit."""
        clear_run(self.folder)
        progress = RunProgress(self.rows, self.bench)
        say(progress.before())
        for number, row in enumerate(self.rows):
            say(progress.at(number))
            began = time.monotonic()
            try:
                for table in ROWS[row].measure(self.bench):
                    self._add(table)
            except Exception as error:  # A row that fails must not cost the other rows.
                self.broken = True
                if not isinstance(error, BenchError | StackError):
                    traceback.print_exc()
                say(f"{row} could not be measured. {error}")
            self.took[row] = time.monotonic() - began
            progress.took(number, self.took[row])
        self._keep()

    @property
    def kept(self) -> str:
        """A sentence that says where the results are."""
        if not self.tables:
            return "Nothing was measured yet."
        return f"What was measured: {self.folder / PAGE}, with the figures of each round in {JSON}."

    @property
    def about(self) -> dict[str, str]:
        """The circumstances of the figures, and the time that each finished row took."""
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
        write_run(self.folder, self.tables, self.about, whole)


def say(line: str) -> None:
    """Print *line* on stderr, beside the figures on stdout."""
    print(line, file=sys.stderr, flush=True)


class RunProgress:
    """An estimate of the time that a run of *rows* takes. It learns from each finished row."""

    def __init__(self, rows: Sequence[str], bench: Bench) -> None:
        self._rows = rows
        usual = QUICK if bench.quick else WHOLE
        longer = bench.rounds * bench.seconds / (usual.rounds * usual.seconds)
        self._expected = [ROWS[row].quick if bench.quick else ROWS[row].whole for row in rows]
        self._expected = [seconds * longer for seconds in self._expected]
        self._spent: list[float] = []

    def before(self) -> str:
        return (
            f"{len(self._rows)} rows, {duration(sum(self._expected))} on two cores with nothing else to do."
        )

    def at(self, number: int) -> str:
        """Return the line to print before row *number*, with its time and the time that is left."""
        row, left = self._rows[number], sum(self._expected[number:]) * self.slowness
        lasts = self._expected[number] * self.slowness
        return f"[{number + 1}/{len(self._rows)}] {row}: {duration(lasts)}. Left in all: {duration(left)}."

    def took(self, number: int, seconds: float) -> None:
        assert number == len(self._spent)
        self._spent.append(seconds)

    @property
    def slowness(self) -> float:
        """The ratio of actual to expected time of the finished rows; 1 if there are none."""
        expected = sum(self._expected[: len(self._spent)])
        return sum(self._spent) / expected if expected else 1.0


def duration(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"


def describe_machine() -> dict[str, str]:
    """Return what to print with the figures: the machine, its load, the commit, the versions."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "commit": commit_of_checkout(),
        "versions": ", ".join(filter(None, map(version_of, PACKAGES))),
    }


def version_of(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return ""


def commit_of_checkout() -> str:
    """Return the commit of this checkout; "" if this is none."""
    asked = ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
