"""The tables of a run as Markdown, JSON and SVG, in a folder from which they can be read again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from bench.crew import BenchError
from bench.figures import MEASURES, Result, Table, Target

#: The files of a run in its folder.
JSON, PAGE = "bench.json", "bench.md"
#: The page with a paragraph about each missed target.
WHY = "docs/explanation/performance-targets.md"

#: In pixels: the width of a picture, where bars begin, the longest bar, and the height of a line.
PLOT_WIDTH, PLOT_LEFT, LONGEST_BAR, BAR_HEIGHT = 860, 200, 520, 30
#: The pixels above the bars.
PLOT_TOP = 64
OURS, PEERS, INK, SOFT = "#067647", "#98a2b3", "#1d2433", "#5d6678"
PICTURE = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PLOT_WIDTH} {{height}}" role="img" \
font-family="system-ui, DejaVu Sans, sans-serif" font-size="14" fill="{INK}">
<title>{{title}}: {{heading}}</title>
<rect width="{PLOT_WIDTH}" height="{{height}}" fill="#fff"/>
<text x="12" y="24" font-weight="600">{{title}}</text>
<text x="12" y="46" fill="{SOFT}">{{heading}}: median, smallest and largest round</text>
{{bars}}
</svg>
"""
BAR = f"""\
<text x="{PLOT_LEFT - 10}" y="{{base}}" text-anchor="end">{{name}}</text>
<rect x="{PLOT_LEFT}" y="{{top}}" width="{{median:.1f}}" height="{BAR_HEIGHT - 10}" rx="3" fill="{{colour}}"/>
<path d="M{{low:.1f}} {{middle}}H{{high:.1f}}" stroke="{INK}" stroke-width="2"/>
<text x="{{end:.1f}}" y="{{base}}">{{shown}}</text>"""


def markdown(table: Table) -> str:
    """Return *table* with the medians of the rounds; the first measure also has the smallest and largest."""
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
    """Return the head of a page, which says what the figures depend on."""
    lines = ["# distlock beside other locks", "", *(f"- {what}: {which}" for what, which in about.items())]
    if not whole:
        lines.append("- NOT WHOLE: the run was stopped, or goes on, or something could not be measured.")
    return "\n".join(lines)


def summary(tables: Sequence[Table]) -> str:
    """Return all targets with their results, and what could not be judged."""
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
    """Return how many targets could not be judged, and for lack of which contestants; "" if none."""
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
    """Return every figure of every round, in seconds and counts.

    *about*: what the figures depend on. *whole*: whether all requested rows have been measured.
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


def svg(table: Table) -> str:
    """Draw the first measure of *table*: a bar for the median, and a line from smallest to largest."""
    name = table.shown[0]
    measure = MEASURES[name]
    spreads = [(one, spread) for one in table.rounds if (spread := table.spread(one, name))]
    most = max(high for _, (_, _, high) in spreads) or 1.0
    bars = []
    for number, (contestant, spread) in enumerate(spreads):
        median, low, high = (LONGEST_BAR * figure / most for figure in spread)
        top = PLOT_TOP + BAR_HEIGHT * number
        bars.append(
            BAR.format(
                name=escape(contestant),
                median=median,
                low=PLOT_LEFT + low,
                high=PLOT_LEFT + high,
                end=PLOT_LEFT + high + 8,
                top=top + 4,
                middle=top + 14,
                base=top + 19,
                colour=OURS if contestant.startswith("distlock") else PEERS,
                shown=measure.shown(spread[0]),
            )
        )
    height = PLOT_TOP + BAR_HEIGHT * len(bars) + 8
    title, heading = escape(table.title), escape(measure.heading)
    return PICTURE.format(height=height, title=title, heading=heading, bars="\n".join(bars))


def clear_run(folder: Path) -> None:
    """Remove the results of an older run from *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.svg"), folder / JSON, folder / PAGE):
        old.unlink(missing_ok=True)


def write_run(folder: Path, tables: Sequence[Table], about: Mapping[str, str], whole: bool) -> None:
    """Write all results so far. A run calls this after each table, so that it loses at most one."""
    pages = [head(about, whole), summary(tables).rstrip()]
    for number, table in enumerate(tables, 1):
        picture = f"{number:02}-{table.row}.svg"
        replace_file(folder / picture, svg(table))
        pages += [markdown(table).rstrip(), f"![{table.title}]({picture})"]
    replace_file(folder / JSON, as_json(tables, about, whole))
    replace_file(folder / PAGE, "\n\n".join(pages) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Write *text* to *path* in one step, so that a killed run leaves the old file whole."""
    made = path.with_name(path.name + ".new")
    made.write_text(text, encoding="utf-8")
    os.replace(made, path)


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The results of a finished run, read from its folder."""

    about: Mapping[str, str]
    tables: Sequence[Table]


def read_run(folder: Path) -> KeptRun:
    """Read the results of a run. Raise `BenchError` unless *folder* has those of a whole run."""
    path = folder / JSON
    try:
        told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise BenchError(f"{path} is not there. Run: scripts/bench --to {folder}") from None
    if not told["whole"]:
        raise BenchError(
            f"{path} is of a run that was stopped, or could not measure something. "
            f"Run: scripts/bench --to {folder}"
        )
    try:
        tables = [
            Table(
                each["row"],
                each["title"],
                each["rounds"],
                each["measures"],
                [target_of(one) for one in (*each["targets"], *each["not judged"])],
                each["notes"],
                each["violations"],
                each["lost"],
            )
            for each in told["tables"]
        ]
    except KeyError:
        raise BenchError(
            f"{path} is of another version of the bench. Run: scripts/bench --to {folder}"
        ) from None
    return KeptRun(told["about"], tables)


def target_of(told: Mapping[str, Any]) -> Target:
    return Target(**{name: told[name] for name in Target.__slots__})
