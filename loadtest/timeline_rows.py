"""A timeline as rows for the report: time goes down, with a column for each instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.timeline import Span, Timeline

#: The bar of an instance, and what the legend calls it.
BARS = {
    "held": "holds the lock",
    "believed": "holds it no longer, and does not know",
    "committing": "has let it go, and not committed",
    "stopped": "stands still",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One instance at one moment."""

    #: What it does then; "" if nothing.
    text: str
    #: The styles of text and bar: the bar's halves above and below the moment have one each.
    styles: str


@dataclass(frozen=True, slots=True)
class Row:
    #: Since the first moment.
    milliseconds: int
    cells: tuple[Cell, ...]


def rows(timeline: Timeline) -> list[Row]:
    """All have one height, however long it took between them."""
    moments = sorted({mark.at for mark in timeline.marks})
    return [
        Row(
            round((at - moments[0]) * 1000),
            tuple(cell(timeline, instance, at) for instance in timeline.instances),
        )
        for at in moments
    ]


def cell(timeline: Timeline, instance: str, at: float) -> Cell:
    marks = [mark for mark in timeline.marks if (mark.instance, mark.at) == (instance, at)]
    spans = [span for span in timeline.spans if span.instance == instance]
    styles = [f"is-{mark.what}" for mark in marks] + ["twice"] * any(mark.twice for mark in marks)
    styles += [f"up-{span.what}" for span in spans if span.since < at <= span.until]
    styles += [f"down-{span.what}" for span in spans if span.since <= at < span.until]
    return Cell(", ".join(mark.text for mark in marks), " ".join(styles))


def legend(spans: Sequence[Span]) -> dict[str, str]:
    """Of the bars that are there."""
    return {what: name for what, name in BARS.items() if any(span.what == what for span in spans)}
