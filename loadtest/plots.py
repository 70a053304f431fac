"""The plots of the report, as numbers: the template draws them, so that a phone's width cuts nothing off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from loadtest import words
from loadtest.run import Run

#: How many lines a scale has, at most.
LINES = 6


@dataclass(frozen=True, slots=True)
class Tick:
    label: str
    #: Where it is, in per cent of the plot.
    at: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over time, in a square of 100 by 100 whose upper left corner is 0, 0."""

    #: SVG paths.
    sold: str
    stock: str
    #: Where all units are sold.
    limit: float
    seconds: tuple[Tick, ...]
    units: tuple[Tick, ...]


def stock_over_time(run: Run) -> Plot:
    """What was sold, and what the shop believed to have, from the first purchase to the last."""
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
        tuple(Tick(f"{value:g}", 100 * value / end) for value in scale(0.0, end)),
        tuple(Tick(f"{value:g}", down(value)) for value in scale(low, high)),
    )


def scale(low: float, high: float) -> list[float]:
    """Round numbers from *low* to *high*, at most `LINES` of them."""
    step = next(
        base * 10.0**power
        for power in count(-3)
        for base in (1, 2, 5)
        if (high - low) / (base * 10.0**power) < LINES
    )
    first = -(-low // step)
    return [round((first + number) * step, 3) for number in range(LINES) if (first + number) * step <= high]


@dataclass(frozen=True, slots=True)
class Times:
    """How long purchases took, in milliseconds: half of them no longer than *half*, 95 % than *most*."""

    name: str
    half: float
    most: float


def times(run: Run) -> tuple[Times, ...]:
    """The wait for the lock, and for the answer, which includes it."""
    return tuple(
        Times(name, words.percentile(measured, 50), words.percentile(measured, 95))
        for name, measured in (("for the lock", words.waits(run)), ("for the answer", words.latencies(run)))
    )


def longest(runs: Sequence[Run]) -> float:
    """What fills the plot of the times."""
    return max((time.most for run in runs for time in times(run)), default=0.0) or 1.0
