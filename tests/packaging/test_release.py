"""``scripts/package --release`` refuses what must not be released, and says what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.script import ROOT, load


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files that the checklist looks at."""
    (tmp_path / "distlock").mkdir()
    shutil.copy(ROOT / "distlock" / "__init__.py", tmp_path / "distlock")
    git(tmp_path, "init", "--quiet")
    return tmp_path


@pytest.fixture
def script(clone: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    script = load()
    run = script.run
    monkeypatch.setattr(script, "ROOT", clone)
    monkeypatch.setattr(script, "run", lambda *command: run(*command, cwd=clone))
    monkeypatch.setattr(script, "package", lambda into: [])
    monkeypatch.setattr(sys, "argv", ["package", str(clone / "dist"), "--release"])
    return script


def git(clone: Path, *words: str) -> None:
    own = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *own, *words], cwd=clone, check=True, capture_output=True)


def write(clone: Path, heading: str) -> None:
    (clone / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n\n* One.\n", "utf-8")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "all")


def test_a_version_with_a_date_and_no_tag_is_built(
    clone: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    write(clone, f"## {script.own_version()}, 2026-12-01")
    assert script.main() == 0
    assert f"git tag v{script.own_version()}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("date", "CHANGELOG.md has no date for {version}, but 'unreleased'. Write '## {version}, <year>-"),
        ("version", "CHANGELOG.md has no date for {version}, but 'nothing'."),
        ("tag", "The tag v{version} exists. Raise __version__ in distlock/__init__.py."),
        ("tree", "The clone has changes that no commit has. Commit or remove them:\n?? left_over"),
    ],
)
def test_what_must_not_be_released_is_refused(
    spoil: str, said: str, clone: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    version = script.own_version()
    headings = {"date": f"## {version}, unreleased", "version": "## 0.0.0, 2026-12-01"}
    write(clone, headings.get(spoil, f"## {version}, 2026-12-01"))
    if spoil == "tag":
        git(clone, "tag", f"v{version}")
    if spoil == "tree":
        (clone / "left_over").touch()
    assert script.main() == 1
    assert said.format(version=version) in capsys.readouterr().err
