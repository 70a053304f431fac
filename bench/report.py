"""The tables of a run as Markdown, for people and terminals, and as JSON, for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from bench.measures import MEASURES
from bench.table import Table


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


def cells_of(table: Table, contestant: str, name: str, spread: bool) -> list[str]:
    measure, figures = MEASURES[name], table.spread(contestant, name)
    if figures is None:
        return ["", ""] if spread else [""]
    median, low, high = map(measure.shown, figures)
    return [median, f"{low}, {high}"] if spread else [median]


def as_json(tables: Sequence[Table], about: dict[str, str]) -> str:
    """Every figure of every round, in seconds and counts. *about*: what was measured on."""
    return json.dumps(
        {
            "about": about,
            "tables": [
                {
                    "row": table.row,
                    "title": table.title,
                    "rounds": table.rounds,
                    "targets": [
                        asdict(result.target)
                        | {"median": result.median, "low": result.low, "high": result.high, "met": result.met}
                        for result in table.results()
                    ],
                    "violations": table.violations,
                    "lost": table.lost,
                    "notes": table.notes,
                }
                for table in tables
            ],
        },
        indent=1,
    )
