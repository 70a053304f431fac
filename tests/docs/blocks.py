"""What a reader may copy: the blocks of the pages, and the commands that stand in their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
#: Programs of ours, and those that our pages say to run.
PROGRAMS = r"(?:python )?manage\.py|flask|distlock|scripts/\w+|python -m|pip install"


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def named(page: Path) -> str:
    """As the tests call it: ``how-to/tasks.md``, or ``README.md``."""
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text("utf-8")
        fences = re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for found in fences:
            yield Block(named(page), text.count("\n", 0, found.start()) + 1, found[1], found[2])


def commands_in_sentences() -> Iterator[Block]:
    """`manage.py migrate distlock`, as a sentence or a table has it."""
    for page in PAGES:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            for command in re.findall(rf"`((?:{PROGRAMS}) [^`…]+)", line):
                yield Block(named(page), number, "sh", command)
