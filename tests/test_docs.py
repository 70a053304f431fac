"""The documentation is run, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import distlock

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
)
HEADINGS = ["When to choose it", "Set it up", "Options", "How it works", "Promises", "What to watch out for"]


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def stands_in(snippet: str, page: str) -> bool:
    """Whether the page has the snippet's lines, in that order."""
    lines = iter(page.splitlines())
    return all(line in lines for line in snippet.splitlines() if line)


def headings(page: Path) -> list[str]:
    return re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:|inv:)([^)#]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            every = re.findall(r"^##+ (.*)$", linked.read_text("utf-8"), re.MULTILINE)
            titles = (re.sub(r"[^\w -]", "", heading.lower()) for heading in every)
            assert anchor in {title.replace(" ", "-") for title in titles}, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_others_are_well_formed(page: Path) -> None:
    """No network is asked: whether they lead somewhere today is not ours to test."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((\w+:[^)]*)\)", text):
        if not target.startswith("inv:"):
            assert re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./~%#?=&-]*)?", target), target


def test_the_lines_of_the_readme_are_those_of_the_pages_that_are_run() -> None:
    """The pages' ten lines are served and bought from in the tests of the faces."""
    pages = [page for name in ("django", "flask") for page in snippets(DOCS / "start" / f"{name}.md")]
    for snippet in snippets(ROOT / "README.md"):
        for part in re.split(r"\n+(?=# \S+\.py\n)", snippet.replace(": ...", ":")):
            assert any(stands_in(part, page) for page in pages), part


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= 200
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"```.*?```", "", "\n".join(lines), flags=re.DOTALL))
    tables, prose = re.findall(r"^\|.*", text, re.MULTILINE), re.findall(r"^(?!\|).+", text, re.MULTILINE)
    assert len(" ".join(prose).split()) <= 350
    assert len(" ".join(tables).split()) <= 200


def test_the_examples_of_the_core_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for snippet in snippets(DOCS / "reference/core.md"):
        exec(compile(snippet, "docs/reference/core.md", "exec"), namespace)
    assert "Fence(epoch=1, number=1)" in capsys.readouterr().out
    assert isinstance(namespace["locks"], distlock.Locks)
    namespace["locks"].close()


@pytest.mark.parametrize(
    "backend",
    [
        *("cluster", "database", "file", "memory", "mysql", "postgresql"),
        *("redis", "redlock", "sentinel", "zookeeper"),
    ],
)
def test_each_backend_has_a_page_with_the_same_headings(backend: str) -> None:
    page = DOCS / "reference/backends" / f"{backend}.md"
    assert headings(page) == HEADINGS
    rows = re.findall(r"^\| (G\d) \|", page.read_text("utf-8"), re.MULTILINE)
    assert rows == [f"G{number}" for number in range(1, 8)]


def test_the_core_needs_no_third_party() -> None:
    code = "import sys, distlock.backends.file, distlock.backends.memory, distlock.web.settings.aliases\n"
    code += "third = {'django', 'flask', 'redis', 'kazoo'} & sys.modules.keys()\nassert not third, third"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_version_is_in_the_changelog() -> None:
    assert f"## {distlock.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
