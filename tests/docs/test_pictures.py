"""The pictures of the pages: `scripts/docs --screenshots` takes them, each is shown, and none is heavy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from PIL import Image

from tests.redis_server import eventually

ROOT = Path(__file__).resolve().parents[2]
#: Bytes. A page with two of them opens on a phone's network as well.
HEAVY = 150_000


def shown() -> dict[Path, str]:
    """Return the pictures that pages and README show, each with what a screen reader says in its place."""
    found = {}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", page.read_text("utf-8")):
            found[(page.parent / target).resolve()] = text
    return found


def test_each_picture_is_shown_and_light() -> None:
    pictures = {file for kind in ("png", "svg") for file in (ROOT / "docs").rglob(f"*.{kind}")}
    assert pictures == set(shown())
    assert [file.name for file in pictures if file.stat().st_size > HEAVY] == []
    assert [file.name for file, text in shown().items() if len(text.split()) < 8] == []


def test_the_command_takes_a_picture_of_the_real_thing_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.screenshots", "alerts", "--to", str(tmp_path)]
    marked = {**os.environ, "DISTLOCK_SCREENSHOTS": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=marked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'alerts.png'}" in done.stdout
    with Image.open(tmp_path / "alerts.png") as picture:
        assert picture.width == 900
    assert left_behind(tmp_path) == []


def test_a_command_that_is_ended_stops_what_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.screenshots", "shop", "--to", str(tmp_path)]
    marked = {**os.environ, "DISTLOCK_SCREENSHOTS": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=marked) as process:
        eventually(lambda: "gunicorn" in str(left_behind(tmp_path)), "the shop is started", pause=0.1)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    # The kernel ends what was starting in this very moment.
    eventually(lambda: left_behind(tmp_path) == [], "nothing runs any more", pause=0.1)
    assert list(tmp_path.iterdir()) == []


def left_behind(mark: Path) -> list[str]:
    """Return the programs that still run with the environment of the command."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DISTLOCK_SCREENSHOTS") == str(mark):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
