"""The story with async views, of Django and of Quart."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from loadtest.__main__ import main
from loadtest.scenario import ASGI, ASYNC_FRAMEWORKS, QUART, Outcome, async_story
from tests.loadtest.command import loadtest


def test_an_async_django_and_a_quart_instance_keep_each_other_out(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = loadtest("mixed-distributed", "--async", "--json", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    control, locked = json.loads(done.stdout)["scenarios"]
    assert (control["scenario"], control["outcome"]) == ("mixed-process", "oversold")
    assert (locked["scenario"], locked["outcome"]) == ("mixed-distributed", "exact")
    assert set(locked["figures"]["sold_by"]) == {"django-asgi-1", "quart-2"}
    page = " ".join(report.read_text().split())
    assert "An async Django instance and a Quart one" in page
    assert page.count("<dt>Async instance</dt>") == 1
    assert "# an asyncio.Lock" in page


def test_two_quart_instances_keep_each_other_out(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    asked = ("--async", "--framework", "quart", "--backend", "redis")
    done = loadtest("two-distributed", *asked, "--json", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    control, locked = json.loads(done.stdout)["scenarios"]
    assert (control["outcome"], locked["outcome"]) == ("oversold", "exact")
    assert set(locked["figures"]["sold_by"]) == {"quart-1", "quart-2"}
    page = html.unescape(report.read_text())
    assert 'async with locks.lock("product_1"):' in page
    assert "@distributed_lock" not in page


@pytest.mark.parametrize("framework", ASYNC_FRAMEWORKS)
def test_each_locked_scenario_has_a_control_that_differs_only_in_the_guard(framework: str) -> None:
    told = {scenario.slug: scenario for scenario in async_story(framework)}
    locked = [scenario for scenario in told.values() if scenario.must_be is Outcome.EXACT]
    two = ["two-distributed"] * (framework != "mixed")
    assert [scenario.slug for scenario in locked] == ["one-process", *two, "mixed-distributed"]
    for scenario in locked:
        control = told[str(scenario.control)]
        assert (control.must_be, control.instances) == (Outcome.OVERSOLD, scenario.instances)
        assert control.guard != scenario.guard
        assert {*scenario.instances} <= {ASGI, QUART}
    assert told["mixed-distributed"].instances == (ASGI, QUART)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        (["--framework", "flask"], "has a thread as any other. Take --framework quart"),
        (["--matrix"], "leave out --matrix and --story"),
        (["--story", "rush"], "leave out --matrix and --story"),
        (["--backend", "database"], "take another --backend"),
        (["--visit", "kill"], "has the visits buy and cart"),
        (["--guard", "for-update"], "leave out --guard"),
    ],
)
def test_what_has_no_async_form_is_refused(
    asked: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--async", *asked]) == 3
    said = capsys.readouterr().err
    assert "--async" in said.splitlines()[0]
    assert remedy in said
