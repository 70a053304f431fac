from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from loadtest.__main__ import main
from tests.databases import Databases
from tests.loadtest.command import loadtest


def test_a_process_lock_is_enough_for_one_instance_and_not_for_two(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = loadtest("one-process", "mixed-process", "--framework", "mixed", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    table = {title: told for title, *told in (re.split(r"  +", line) for line in done.stdout.splitlines())}
    unlocked, locked = table["one-unlocked"], table["one-process"]
    apart = table["mixed-process"]
    assert int(unlocked[0]) >= 2 * 30
    assert unlocked[3:] == ["oversold", "oversold", "as expected"]
    assert locked == ["30", "30", "0", "exact", "exact", "as expected"]
    assert int(apart[0]) >= 1.25 * 30
    assert apart[3:] == ["oversold", "oversold", "as expected"]
    said = " ".join(done.stdout.split())
    assert "30 orders were confirmed for 30 units. 70 purchases were told “sold out”." in said
    # 20 buyers never are 30; only purchases, orders and sales are counted.
    assert not re.search(r"\d+ buyers", said)
    assert "[2/3] one-process: one instance, process lock" in done.stderr
    page = report.read_text()
    assert "One instance, process lock" in page
    for explained in ("Instance", "Process lock", "Distributed lock"):
        assert page.count(f"<dt>{explained}</dt>") == 1
    # Nothing is fetched from anywhere, and no script is needed.
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*", page)
    assert "<script" not in page
    assert [tag for tag in tags if "src=" in tag or re.search(r'href="(?!data:)', tag)] == []


def test_a_django_and_a_flask_instance_keep_each_other_out_on_a_server_that_runs_already(
    databases: Databases,
) -> None:
    done = loadtest("mixed-distributed", "--json", "--database", databases("postgresql", "story"))
    assert done.returncode == 0, done.stdout + done.stderr
    control, locked = json.loads(done.stdout)["scenarios"]
    assert (control["scenario"], control["outcome"]) == ("mixed-process", "oversold")
    assert (locked["scenario"], locked["outcome"]) == ("mixed-distributed", "exact")
    assert set(locked["figures"]["sold_by"]) == {"django-1", "flask-2"}


def test_an_unknown_scenario_is_named_and_is_no_verdict() -> None:
    done = loadtest("three-locks")
    assert done.returncode == 3
    assert "there is no scenario 'three-locks'" in done.stderr


def test_a_scenario_that_the_mixed_story_has_under_another_name_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["two-distributed", "--framework", "mixed"]) == 3
    said = capsys.readouterr().err
    assert "with --framework mixed and --guard distributed" in said
    assert "there is no scenario 'two-distributed'" in said
    assert "mixed-distributed" in said


@pytest.mark.parametrize("visit", ["reduce", "kill"])
def test_the_pages_of_the_articles_are_broken_and_mended(visit: str) -> None:
    """Fifty buyers, as there; the answers tell nothing, the stock tells all."""
    size = ["--users", "50", "--purchases", "2", "--stock", "1" if visit == "reduce" else "10"]
    # That a process lock is enough for one instance is shown on the one page.
    wanted = ["one-process", "two-distributed"] if visit == "reduce" else ["two-distributed"]
    done = loadtest(*wanted, "--framework", "flask", "--visit", visit, "--json", *size)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(done.stdout)["scenarios"]
    assert [(run["scenario"], run["outcome"]) for run in runs] == [
        ("one-unlocked", "oversold"),
        ("one-process", "exact"),
        ("two-process", "oversold"),
        ("two-distributed", "exact"),
    ][-2 * len(wanted) :]
    assert all(run["figures"]["answers"] == {"200": 100} for run in runs)
