"""One word, one meaning: the word list of CONTRIBUTING.md against the code, and plain English everywhere."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_docs import ROOT

PACKAGES = ("distlock", "django_distlock", "flask_distlock")
#: In these the lock service itself is a Python object.
LOCK_SERVICES = {f"distlock/backends/memory/{file}.py" for file in ("backend", "service")}


class Use(NamedTuple):
    """One place where code gives a name to something."""

    file: str
    line: int
    name: str
    #: class, parameter, or variable: an attribute is one, too.
    kind: str
    #: The annotation, or else what is assigned.
    of: str


def uses(source: str, file: str = "planted.py") -> Iterator[Use]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef():
                yield Use(file, node.lineno, node.name, "class", "")
            case ast.arg():
                yield Use(file, node.lineno, node.arg, "parameter", _text(node.annotation))
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield Use(file, node.lineno, name, "variable", _text(node.annotation))
            case ast.Assign():
                for target in node.targets:
                    if isinstance(target, ast.Name | ast.Attribute):
                        name = target.id if isinstance(target, ast.Name) else target.attr
                        yield Use(file, node.lineno, name, "variable", _text(node.value))


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def words(use: Use) -> set[str]:
    """``_lock_services`` and ``LockServices``: lock, service."""
    parts = re.findall(r"[A-Z]?[a-z]+", use.name)
    return {part.lower().removesuffix("s") for part in parts}


def is_mutex(use: Use) -> bool:
    return bool(re.search(r"\bR?Lock\(\)|\b[mM]utex\b", use.of))


#: What a word must not be used for.
FORBIDDEN: dict[str, Callable[[Use], bool]] = {
    "a client is no service": lambda use: "service" in words(use) and use.file not in LOCK_SERVICES,
    "a mutex is no guard": lambda use: "guard" in words(use) and is_mutex(use),
    "a database is no connection": lambda use: (
        "database" in words(use) and bool(re.search(r"\b(Connection|Engine|Session|Pool)\b", use.of))
    ),
    "a fence is a pair, and its number a number": lambda use: (
        use.name.strip("_") in {"fence", "fences"}
        and bool(re.search(r"\bint\b", use.of))
        and "tuple" not in use.of
        # The column of a row that fences itself is the user's, and public.
        and "Mapped" not in use.of
    ),
    "a fence is no database: that is fenced_in": lambda use: (
        use.name == "fence" and use.kind == "parameter" and use.of in {"str", "str | None"}
    ),
    "a token is the secret of a hold": lambda use: (
        "token" in words(use) and bool(re.search(r"\.set\(|Column|CharField|hexdigest", use.of))
    ),
}

PLANTED = {
    "a client is no service": [
        "class Services: ...",
        "def f(service): ...",
        "self._service = connect(url)",
    ],
    "a mutex is no guard": ["guard = threading.Lock()", "self._guard: Mutex = mutex()"],
    "a database is no connection": [
        "def f(database: Connection): ...",
        "database: sqlalchemy.Engine = engine",
    ],
    "a fence is a pair, and its number a number": ["fence: int = 1", "def f(fences: list[int]): ..."],
    "a fence is no database: that is fenced_in": ["def f(fence: str | None = None): ..."],
    "a token is the secret of a hold": ["token = CharField()", "token = variable.set(())"],
}


@functools.cache
def in_packages() -> list[Use]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [use for path in files for use in uses(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())]


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_no_word_is_used_for_something_else(rule: str) -> None:
    assert not [use for use in in_packages() if FORBIDDEN[rule](use)]


@pytest.mark.parametrize(("rule", "source"), [(rule, one) for rule in PLANTED for one in PLANTED[rule]])
def test_a_word_that_is_used_for_something_else_is_found(rule: str, source: str) -> None:
    assert any(FORBIDDEN[rule](use) for use in uses(source))


def listed() -> list[tuple[str, str]]:
    """The rows of the list in CONTRIBUTING.md: the word, and what it is in code."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## The words")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([a-z -]+) \| .* \|(?: `([^`]*)`)?[^|]*\|$", page, re.MULTILINE)


def test_each_word_is_listed_once_with_one_class_of_that_name() -> None:
    rows = listed()
    assert len(rows) > 20
    assert max(Counter(word for word, _ in rows).values()) == 1
    defined = Counter(use.name for use in in_packages() if use.kind == "class")
    for word, code in rows:
        if code.isidentifier() and code[0].isupper():
            assert defined[code] == 1, f"{word}: {defined[code]} classes are called {code}"


#: Sentences that say who, and not what: a request, a waiter, a process, a caller.
RIDDLES = re.compile(
    r"""(?:^|[.:;*#"(]) *Who (?!may use the directory)|\b(?:[Ww]hoever|[Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b"""
)


TEXTS = {".py", ".md", ".lua", ".html", ".sh"}


def texts() -> Iterator[Path]:
    for folder in (*PACKAGES, "demo_shop", "loadtest", "bench", "docs", "scripts", "packaging", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if (
                path.suffix in {".py", ".md", ".lua", ".html", ".sh", ""}
                and path.is_file()
                and path != Path(__file__)
            ):
                yield path
    yield from ROOT.glob("*.md")


def test_sentences_say_what_does_something() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if RIDDLES.search(line)
    ]
    assert not found
    assert RIDDLES.search("# Who has it waits. It is his.")
