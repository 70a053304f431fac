"""The page on how it is built names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/inside.md").read_text("utf-8")


def members(paths: list[Path]) -> set[str]:
    """Each class of *paths*, and ``Class.member`` for its methods and for the attributes that it sets."""
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
                for inner in ast.walk(node):
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.add(f"{node.name}.{inner.name}")
                    elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                        found.add(f"{node.name}.{inner.attr}")
    return found


def test_each_file_of_the_page_is_there() -> None:
    rows = re.findall(r"^\| `.*\| ([^|]*\.py`[^|]*) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 10
    for name in re.findall(r"`([\w/]+\.py)`", " ".join(rows)):
        assert (ROOT / "distlock/engine" / name).is_file(), name
    for name in re.findall(r"`((?:distlock|tests)/[\w/]+\.py)`", PAGE):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"`(\w+\.lua)`", PAGE):
        assert (ROOT / "distlock/backends/redis/lua" / name).is_file(), name


def test_each_class_and_method_of_the_page_is_there() -> None:
    there = members(sorted((ROOT / "distlock").rglob("*.py")))
    named = re.findall(r"`([A-Z]\w+(?:\.(?!md)\w+)?)`", PAGE)
    assert len(named) > 30
    assert [name for name in named if name not in there] == []


def test_each_module_of_a_backend_that_the_page_names_is_there() -> None:
    table = PAGE.partition("## Inside a backend")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    backends = [word.strip("`") for word in rows[0][1:]]
    named = {backend: set[str]() for backend in backends}
    for _, *cells in rows[1:]:
        for backend, cell in zip(backends, cells, strict=False):
            named[backend].update(re.findall(r"`(\w+\.py)`", cell))
    for backend, modules in named.items():
        there = {path.name for path in (ROOT / "distlock/backends" / backend).glob("*.py")}
        assert modules <= there
        assert there - modules <= {"__init__.py", "address.py", "offloading.py"}
