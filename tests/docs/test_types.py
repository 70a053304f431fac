"""No block of Python in the pages escapes mypy: each is a module, and what it does not define is ambient."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
AMBIENT = Path(__file__).with_name("ambient.pyi")
#: Its blocks are parts of the exhibits, which tests/museum/test_page.py holds them to.
EXCERPTS = {"explanation/museum.md"}
OPTIONS = ["--check-untyped-defs", "--no-strict-optional", "--follow-imports=silent"]
OPTIONS += ["--ignore-missing-imports", "--disable-error-code=var-annotated"]
#: What is made when the program runs, and a plugin of mypy would know.
MADE_LATER = ['Name "db.Model" is not defined', '"QuerySet[Any, Any]" has no attribute "fenced_update"']


def bound(tree: ast.AST) -> set[str]:
    """The names that a block defines, anywhere."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.alias():
                found.add((node.asname or node.name).partition(".")[0])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.arg():
                found.add(node.arg)
            case ast.Name(ctx=ast.Store()):
                # x += 1 needs an x.
                found.add(node.id)
    return found - {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }


def used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(dir(builtins))


def modules(text: str, page: str) -> Iterator[tuple[str, str]]:
    """The name and the code of a module for each block of Python in *text*, the text of *page*."""
    name = re.sub(r"\W", "_", page)
    ambient = bound(ast.parse(AMBIENT.read_text("utf-8")))
    #: Which module defines a name last. Each block goes on where those before it on the page ended.
    given = dict.fromkeys(ambient, "ambient")
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
        tree = ast.parse(block)
        missing = sorted((used(tree) - bound(tree)) & given.keys())
        lines = [f"from {given[word]} import {word}\n" for word in missing]
        yield f"{name}_{number}", "".join([*lines, block])
        top = {word for statement in tree.body for word in bound(statement)}
        given |= dict.fromkeys(top & bound(tree), f"{name}_{number}")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of all of them."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "ambient.pyi").write_text(AMBIENT.read_text("utf-8"))
    (folder / "mypy.ini").write_text("[mypy]\n")
    pages = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in DOCS.rglob("*.md")}
    pages["wrong.md"] = "```python\nlocks.lock('product_1', timout=3)\n```\n```python\nlokcs\n```\n"
    for page, text in pages.items():
        if page not in EXCERPTS:
            for name, code in modules(text, page):
                (folder / f"{name}.py").write_text(code)
    assert len(list(folder.glob("*.py"))) > 60
    # The cache lies beside that of the packages: it makes seconds of a minute.
    cache = ROOT / ".mypy_cache" / "pages"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", cache, *OPTIONS, "."],
        cwd=folder,
        env={"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_block_of_the_pages_fits_together(said: str) -> None:
    found = [line for line in said.splitlines() if not line.startswith(("wrong_md_", "Found "))]
    found = [line for line in found if not any(words in line for words in MADE_LATER)]
    assert "\n".join(found) == ""


def test_a_mistake_would_be_found(said: str) -> None:
    assert re.search(r'wrong_md_0\.py:\d+: error: .*"timout"', said)
    assert re.search(r'wrong_md_1\.py:\d+: error: Name "lokcs" is not defined', said)
