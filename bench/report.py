"""The tables of a run as Markdown, for people and terminals, and as JSON, for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench.measures import MEASURES
from bench.table import Result, Table

#: Where each missed target has its paragraph.
WHY = "docs/explanation/performance-targets.md"


def markdown(table: Table) -> str:
    """Medians of the rounds; for the first measure the smallest and largest, too."""
    shown = table.shown
    headings = [MEASURES[name].heading for name in shown]
    lines = [
        f"## {table.title}",
        "",
        f"| | {' | '.join([headings[0], 'from, to', *headings[1:]])} |",
        f"|---|{'--:|' * (len(headings) + 1)}",
    ]
    for contestant in table.rounds:
        cells = [cell for name in shown for cell in cells_of(table, contestant, name, name == shown[0])]
        lines.append(f"| {contestant} | {' | '.join(cells)} |")
    lines += ["", *(f"- {result}" for result in table.results())]
    lines += [f"- VOID: {violation}" for violation in table.violations]
    lines += [f"- NOT MEASURED: {peer}" for peer in table.lost]
    lines += [f"- {note}" for note in table.notes]
    return "\n".join(lines).rstrip() + "\n"


def head(about: Mapping[str, str], whole: bool) -> str:
    """What was measured on."""
    lines = ["# distlock beside other locks", "", *(f"- {what}: {which}" for what, which in about.items())]
    if not whole:
        lines.append("- NOT WHOLE: the run was stopped, or goes on, or something could not be measured.")
    return "\n".join(lines)


def summary(tables: Sequence[Table]) -> str:
    """Each target with what came of it, and all that could not be judged."""
    results = [(table, result) for table in tables for result in table.results()]
    void = [f"- {table.row}: VOID: {one}" for table in tables for one in table.violations]
    lost = [f"- {table.row}: NOT MEASURED: {one}" for table in tables for one in table.lost]
    met = f"{sum(result.met for _, result in results)} of {len(results)} targets are met."
    lines = ["## Targets", "", met if results else "No target speaks of what was measured.", ""]
    if left_out := not_judged(tables):
        lines += [left_out, ""]
    if results:
        lines += ["| row | target | median | from, to | |", "|---|---|--:|--:|---|"]
        lines += [
            f"| {table.row}: {table.title} | {result.target} | {result.shown_median} | {result.shown_range} "
            f"| {verdict(result)} |"
            for table, result in results
        ]
    return "\n".join([*lines, *[""] * bool(void or lost), *void, *lost]).rstrip() + "\n"


def not_judged(tables: Sequence[Table]) -> str:
    """Of how many targets nothing is known, and whom they speak of; "" where there are none."""
    targets = [target for table in tables for target in table.not_judged]
    who = dict.fromkeys(target.peer or target.ours for target in targets)
    return f"Not judged: {len(targets)}, of what was not measured: {', '.join(who)}." if targets else ""


def verdict(result: Result) -> str:
    if result.met:
        return "met"
    if result.void:
        return "VOID"
    return f"MISSED: {WHY}#{result.target.why}" if result.target.why else "MISSED"


def cells_of(table: Table, contestant: str, name: str, spread: bool) -> list[str]:
    measure, figures = MEASURES[name], table.spread(contestant, name)
    if figures is None:
        return ["", ""] if spread else [""]
    median, low, high = map(measure.shown, figures)
    return [median, f"{low}, {high}"] if spread else [median]


def as_json(tables: Sequence[Table], about: Mapping[str, str], whole: bool = True) -> str:
    """Every figure of every round, in seconds and counts.

    *about*: what was measured on. *whole*: whether all that was asked for has been measured.
    """
    return json.dumps(
        {
            "about": dict(about),
            "whole": whole,
            "targets": {
                "met": sum(result.met for table in tables for result in table.results()),
                "of": sum(len(table.results()) for table in tables),
            },
            "tables": [
                {
                    "row": table.row,
                    "title": table.title,
                    "measures": list(table.measures),
                    "rounds": table.rounds,
                    "targets": [
                        asdict(result.target)
                        | {"median": result.median, "low": result.low, "high": result.high, "met": result.met}
                        for result in table.results()
                    ],
                    "not judged": [asdict(target) for target in table.not_judged],
                    "violations": table.violations,
                    "lost": table.lost,
                    "notes": table.notes,
                }
                for table in tables
            ],
        },
        indent=1,
    )
