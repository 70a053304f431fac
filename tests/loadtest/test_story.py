"""The command, run as a person runs it, with fewer buyers. Locust stays in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.stack import ROOT

SMALL = ["--users", "20", "--purchases", "5", "--stock", "30"]


def loadtest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest", *arguments, *SMALL],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("framework", ["django", "flask"])
def test_a_process_lock_is_enough_for_one_instance_and_not_for_two(framework: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = loadtest("one-process", "two-process", "--framework", framework, "--report", str(report), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    unlocked, locked, apart = json.loads(done.stdout)["scenarios"]
    assert [unlocked["outcome"], locked["outcome"], apart["outcome"]] == ["oversold", "exact", "oversold"]
    assert unlocked["figures"]["orders"] >= 2 * 30
    assert locked["figures"]["orders"] == 30
    assert apart["figures"]["orders"] >= 1.25 * 30
    page = report.read_text()
    assert not re.findall(
        r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?!data:)[^\"' >]+", page[: page.index("<body>")]
    )
    assert "one instance, process lock" in page


def test_the_table_tells_each_scenario_in_the_end() -> None:
    done = loadtest("one-process", "--framework", "flask")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"one instance, process lock +30 +30 +0 +exact +exact +as it must", done.stdout)
    assert "[2/2] one instance, process lock" in done.stderr


def test_an_unknown_scenario_is_named() -> None:
    done = loadtest("three-locks")
    assert done.returncode == 2
    assert "there is no scenario 'three-locks'" in done.stderr
