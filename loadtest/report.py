"""The report: one HTML file that needs nothing else, for a reader who has never heard of locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from loadtest import plots, readers_words, report_words, rush_words, timeline_rows, timeline_words, words
from loadtest.crowd import Crowd
from loadtest.matrix import Matrix
from loadtest.matrix_terminal import cell, doubts, in_all
from loadtest.readers import Reading
from loadtest.run import Run
from loadtest.terminal import where
from loadtest.timeline import timeline

TEMPLATES = Environment(
    autoescape=True, loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
)


def write_report(runs: Sequence[Run], file: Path) -> None:
    write(
        file,
        "report.html",
        runs=runs,
        words=words,
        say=report_words,
        where=where(one_of(run.backend for run in runs), runs[0].database),
        timelines=[timeline(run) for run in runs],
        rows=timeline_rows.rows,
        legend=timeline_rows.legend,
        told=timeline_words.told,
        stock_over_time=[plots.stock_over_time(run) for run in runs],
        times=plots.times,
        longest=plots.longest(runs),
    )


def write_matrix(matrix: Matrix, file: Path) -> None:
    write(file, "matrix.html", matrix=matrix, in_all=in_all(matrix), cell=cell, doubts=doubts(matrix))


def write_rush(runs: Sequence[Run], crowd: Crowd, file: Path) -> None:
    write(
        file,
        "rush.html",
        runs=runs,
        crowd=crowd,
        words=words,
        say=rush_words,
        where=where(runs[0].backend, runs[0].database),
        fastest=rush_words.fastest(runs),
    )


def write_readers(readings: Sequence[Reading], backend: str, database: str, file: Path) -> None:
    write(file, "readers.html", readings=readings, say=readers_words, where=where(backend, database))


def one_of(backends: Iterable[str]) -> str | None:
    """The one that all are; None: they are several, and each scenario's name says which."""
    found = set(backends)
    return found.pop() if len(found) == 1 else None


def open_file(wanted: Path, what: str) -> Path:
    """*wanted*, or, where that is a directory, a file of its own in it: no run takes another's place."""
    if not wanted.is_dir():
        return wanted
    for number in count(1):
        again = f"-{number}" if number > 1 else ""
        file = wanted / f"{datetime.now():%Y-%m-%d-%H%M%S}-{what}{again}.html"
        try:
            file.touch(exist_ok=False)
        except FileExistsError:
            continue
        return file
    raise AssertionError("there is always a number")


def write(file: Path, template: str, **shown: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEMPLATES.get_template(template).render(**shown), "utf-8")
