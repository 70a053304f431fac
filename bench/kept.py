"""What a run found, as files: written anew after each table, so that a stopped one loses one at most."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.crew import BenchError
from bench.plots import svg
from bench.report import as_json, head, markdown, summary
from bench.table import Table, Target

JSON, PAGE = "bench.json", "bench.md"


def clear(folder: Path) -> None:
    """Nothing of an older run may stand beside what this one finds."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.svg"), folder / JSON, folder / PAGE):
        old.unlink(missing_ok=True)


def write(folder: Path, tables: Sequence[Table], about: Mapping[str, str], whole: bool) -> None:
    pages = [head(about, whole), summary(tables).rstrip()]
    for number, table in enumerate(tables, 1):
        picture = f"{number:02}-{table.row}.svg"
        replace(folder / picture, svg(table))
        pages += [markdown(table).rstrip(), f"![{table.title}]({picture})"]
    replace(folder / JSON, as_json(tables, about, whole))
    replace(folder / PAGE, "\n\n".join(pages) + "\n")


def replace(path: Path, text: str) -> None:
    """A run that is killed in between leaves the old file, not half a new one."""
    made = path.with_name(path.name + ".new")
    made.write_text(text, encoding="utf-8")
    os.replace(made, path)


@dataclass(frozen=True, slots=True)
class Kept:
    """A run that is over, read from its folder."""

    about: Mapping[str, str]
    tables: Sequence[Table]


def read(folder: Path) -> Kept:
    """Raises `BenchError` where no whole run stands."""
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
    return Kept(told["about"], tables)


def target_of(told: Mapping[str, Any]) -> Target:
    return Target(**{name: told[name] for name in Target.__slots__})
