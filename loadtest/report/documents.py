"""The results as documents: an HTML report that needs no other file, or JSON for a program.

The report is for readers who have never heard of locks. This module computes the numbers of the plots, which
the template draws, so that they fit the width of a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from loadtest import readers, rush
from loadtest.matrix import Matrix, cell, doubts, in_all
from loadtest.readers import Reading
from loadtest.report import words
from loadtest.report.terminal import where
from loadtest.report.timeline import legend, rows, timeline
from loadtest.run import SaleRun
from loadtest.scenario import BuyerCrowd
from loadtest.verdict import Figures

TEMPLATES = Environment(
    autoescape=True, loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
)


def write_report(runs: Sequence[SaleRun], file: Path) -> None:
    write(
        file,
        "report.html",
        runs=runs,
        words=words,
        where=where(one_of(run.backend for run in runs), runs[0].database),
        timelines=[timeline(run) for run in runs],
        rows=rows,
        legend=legend,
        stock_over_time=[stock_over_time(run) for run in runs],
        times=times,
        longest=longest(runs),
    )


def write_matrix(matrix: Matrix, file: Path) -> None:
    write(file, "matrix.html", matrix=matrix, in_all=in_all(matrix), cell=cell, doubts=doubts(matrix))


def write_rush(runs: Sequence[SaleRun], crowd: BuyerCrowd, file: Path) -> None:
    write(
        file,
        "rush.html",
        runs=runs,
        crowd=crowd,
        words=words,
        say=rush,
        where=where(runs[0].backend, runs[0].database),
        fastest=rush.fastest(runs),
    )


def write_readers(readings: Sequence[Reading], backend: str, database: str, file: Path) -> None:
    write(file, "readers.html", readings=readings, say=readers, where=where(backend, database))


def one_of(backends: Iterable[str]) -> str | None:
    """Return the only one of *backends*; None if there are several."""
    found = set(backends)
    return found.pop() if len(found) == 1 else None


def open_file(wanted: Path, what: str) -> Path:
    """Return *wanted*. If that is a directory, return a new file in it, so that no report is overwritten."""
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


#: A scale has at most this many lines.
LINES = 6


@dataclass(frozen=True, slots=True)
class PlotTick:
    """A line of a plot's scale."""

    label: str
    #: The position in per cent of the plot.
    at: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over time, in a square of 100 by 100 whose upper left corner is 0, 0."""

    #: The line of the sold units, as an SVG path.
    sold: str
    #: The line of the stock, as an SVG path.
    stock: str
    #: The height at which all units are sold.
    limit: float
    seconds: tuple[PlotTick, ...]
    units: tuple[PlotTick, ...]


def stock_over_time(run: SaleRun) -> Plot:
    """Plot the units sold, and the stock that the shop believed in, from the first purchase to the last."""
    times, sold, believed = [0.0], [0], [run.figures.initial]
    left = {product: shelf.initial for product, shelf in run.figures.shelves.items()}
    for order in run.ledger.orders:
        left[order.product] = order.stock_seen - order.quantity
        times.append(max(order.created_at.timestamp() - run.began, 0.0))
        sold.append(sold[-1] + order.quantity)
        believed.append(sum(left.values()))
    high, low = max(*sold, *believed), min(0, *believed)
    end = max(times) or 1.0

    def down(value: float) -> float:
        return 100 * (high - value) / (high - low)

    def path(values: Sequence[int]) -> str:
        steps = [
            f"H{100 * time / end:.2f}V{down(value):.2f}" for time, value in zip(times, values, strict=True)
        ]
        return f"M0 {down(values[0]):.2f}{''.join(steps)}"

    return Plot(
        path(sold),
        path(believed),
        down(run.figures.initial),
        tuple(PlotTick(f"{value:g}", 100 * value / end) for value in scale(0.0, end)),
        tuple(PlotTick(f"{value:g}", down(value)) for value in scale(low, high)),
    )


def scale(low: float, high: float) -> list[float]:
    """Return round numbers from *low* to *high*, at most `LINES` of them."""
    step = next(
        base * 10.0**power
        for power in count(-3)
        for base in (1, 2, 5)
        if (high - low) / (base * 10.0**power) < LINES
    )
    first = -(-low // step)
    return [round((first + number) * step, 3) for number in range(LINES) if (first + number) * step <= high]


@dataclass(frozen=True, slots=True)
class PurchaseTimes:
    """How many milliseconds purchases took: *half* is the median, *most* the 95th percentile."""

    name: str
    half: float
    most: float


def times(run: SaleRun) -> tuple[PurchaseTimes, ...]:
    """Return the wait for the lock, and the wait for the answer, which includes it."""
    return tuple(
        PurchaseTimes(name, words.percentile(measured, 50), words.percentile(measured, 95))
        for name, measured in (("for the lock", words.waits(run)), ("for the answer", words.latencies(run)))
    )


def longest(runs: Sequence[SaleRun]) -> float:
    """Return the longest time, which fills the plot of the times."""
    return max((time.most for run in runs for time in times(run)), default=0.0) or 1.0


def as_json(runs: Sequence[SaleRun]) -> dict[str, object]:
    return {"summary": words.in_all(runs), "scenarios": [run_as_json(run) for run in runs]}


def matrix_as_json(matrix: Matrix) -> dict[str, object]:
    return {"summary": in_all(matrix), "cells": [run_as_json(run) for _, _, run in matrix]}


def rush_as_json(runs: Sequence[SaleRun]) -> dict[str, object]:
    paces = {run.scenario.slug: asdict(rush.pace(run)) for run in rush.compared(runs)}
    return {
        "summary": rush.in_all(runs),
        "scenarios": [run_as_json(run) | {"pace": paces.get(run.scenario.slug)} for run in runs],
    }


def run_as_json(run: SaleRun) -> dict[str, object]:
    return {
        "scenario": run.scenario.slug,
        "title": run.scenario.title,
        "guard": run.scenario.guard,
        "visit": run.visit.slug,
        "backend": run.backend,
        "database": run.database,
        "must_be": run.scenario.must_be,
        "outcome": run.verdict.outcome,
        "conclusion": run.conclusion,
        "evidence": run.verdict.evidence,
        "doubts": run.verdict.doubts,
        "figures": asdict(run.figures) | totals(run.figures),
        "seconds": round(run.duration, 3),
        "answer_ms": spread(words.latencies(run)),
        "lock_wait_ms": spread(words.waits(run)),
    }


def totals(figures: Figures) -> dict[str, int]:
    return {"initial": figures.initial, "final": figures.final, "sold": figures.sold}


def spread(values: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": round(words.percentile(values, percent), 1) for percent in (50, 95, 99)}
