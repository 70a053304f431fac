"""No line installs a stranger's package: ours are on no index, and `distlock` there is not ours."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.packaging.script import ROOT

#: What a reader could paste, in whichever installer's words.
INSTALL = re.compile(
    r"""(?:pip3?|pipx|uv|poetry|pdm)\s+(?:tool\s+)?(?:install|add|download|wheel)\s+([^\n]*)"""
)
#: As a requirement, not as a part of a path, a module or a word.
OURS = re.compile(r"(?<![\w./-])(?:(?:django|flask)[-_])?distlock(?:-web)?(?=[\[=<>~!@;\s'\"`)]|$)")
#: A link of Markdown behind our name is none.
REQUIREMENT = re.compile(r"(?<![\w./-])distlock\s*(?:\[\s*[a-z](?![^\]]*\]\()|[=<>~!]=\s*\d)")


def wrong_lines(text: str) -> list[str]:
    """The lines that ask an index for a distribution of ours, or call ours by the stranger's name."""
    asks = [found[0] for found in INSTALL.finditer(text) if OURS.search(found[1])]
    return asks + [line for line in text.splitlines() if REQUIREMENT.search(line)]


def test_no_file_names_what_an_index_would_answer_with_a_strangers() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    here = "tests/packaging/test_names.py"
    # Pictures are among them, which are no text.
    texts = {
        file: (ROOT / file).read_text("utf-8", "replace")
        for file in tracked
        if file != here and (ROOT / file).is_file()
    }
    assert {file: wrong for file, text in texts.items() if (wrong := wrong_lines(text))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'distlock[redis]'",
        "pip install distlock",
        "python -m pip install -U distlock-web",
        "uv add distlock[django]",
        "uv pip install django-distlock",
        "poetry add 'flask-distlock[redis]'",
        'all = ["distlock[redis,zookeeper]"]',
        "distlock==0.1.0",
        "needs distlock >= 0.1",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert wrong_lines(line)


@pytest.mark.parametrize(
    "line",
    [
        "pip install '/path/to/the/clone[django,redis]'",
        "pip install ./distlock_web-0.1.0-py3-none-any.whl",
        "distlock.connect(...)",
        "distlock [reads it again](again.md) under the lock.",
        'app.config["DISTLOCK"]["default"]',
        'all = ["distlock-web[redis]"]',
        "pip install Flask-SQLAlchemy  # the shop's own",
    ],
)
def test_another_is_not(line: str) -> None:
    assert not wrong_lines(line)


def test_the_errors_for_a_missing_extra_name_a_path() -> None:
    script = (
        "import sys, distlock\n"
        "sys.modules['redis'] = sys.modules['kazoo'] = None\n"
        "distlock.connect('zookeeper://localhost')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install '/path/to/the/clone[zookeeper]'" in done.stderr
    assert not wrong_lines(done.stderr)
