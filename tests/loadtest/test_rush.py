"""The story of a rush: run as a person runs it, and its figures and sentences from made-up sales."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from loadtest import rush, stories
from loadtest.__main__ import main
from loadtest.report.documents import write_rush
from loadtest.run import SaleRun
from loadtest.rush import code_of_view, slow_postgresql
from loadtest.stories import RUSH_WAYS
from loadtest.verdict import Conclusion, judge
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page
from tests.loadtest.command import loadtest
from tests.loadtest.test_verdict import EXACT, OVERSOLD
from tests.loadtest.test_words import run as run_of

SCENARIOS = {scenario.slug: scenario for scenario in stories.rush_scenarios("django")}


def sale(slug: str, answers: int, seconds: float) -> SaleRun:
    """A made-up one: units are sold evenly, each answered 10 ms after it was asked for."""
    figures = OVERSOLD if slug == stories.RUSH_CONTROL else EXACT
    sold = [
        {"at": seconds * (number + 1) / answers - 0.01, "ms": 10.0, "status": 200, "wait_ms": None}
        for number in range(answers)
    ]
    late = [{"at": 2 * seconds, "ms": 900.0, "status": 409, "wait_ms": None}]
    return replace(
        run_of(figures, []),
        scenario=SCENARIOS[slug],
        conclusion=Conclusion.SHOWN,
        verdict=judge(figures),
        rows=sold + late,
        backend="redis",
        database="postgresql",
    )


@pytest.fixture
def runs() -> list[SaleRun]:
    return [sale(slug, 100, 0.25 if slug == "batched" else 1.0) for slug in SCENARIOS]


def test_each_way_is_exact_where_the_shop_without_a_guard_oversells(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = loadtest("--story", "rush", "--framework", "mixed", "--json", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    found = {run["scenario"]: run for run in json.loads(done.stdout)["scenarios"]}
    assert {slug: run["outcome"] for slug, run in found.items()} == {
        "unlocked": "oversold",
        "conditional": "exact",
        "for_update": "exact",
        "locked": "exact",
        "batched": "exact",
    }
    assert all(set(run["figures"]["sold_by"]) == {"django-1", "flask-2"} for run in found.values())
    assert found["unlocked"]["pace"] is None
    assert all(found[slug]["pace"]["sales"] > 0 for slug in [*RUSH_WAYS][1:])
    page = report.read_text()
    assert page.count("sales a second</strong>") == 4
    # The code of the views that were run.
    assert "batch=32" in page


def test_a_rush_counts_sales_until_the_last_one_and_no_answer_that_sold_nothing(runs: list[SaleRun]) -> None:
    pace = rush.pace(runs[1])
    assert pace.sales == pytest.approx(100)
    assert (pace.half, pace.late) == (10.0, 10.0)


def test_the_batches_are_told_beside_the_conditional_update(runs: list[SaleRun]) -> None:
    assert "sold 4.0 times as many a second as the database's own" in rush.in_all(runs)
    # One way alone has nothing to be compared with.
    assert rush.in_all([runs[0], runs[3]]) == "Each way sold every unit once."


def test_no_figure_is_told_where_a_sale_proves_nothing(runs: list[SaleRun]) -> None:
    odd = replace(runs[4], conclusion=Conclusion.INCONCLUSIVE)
    assert rush.in_all([*runs[:4], odd]).startswith("INCONCLUSIVE")
    wrong = replace(runs[4], conclusion=Conclusion.WRONG)
    assert rush.in_all([*runs[:4], wrong]).startswith("WRONG")


def test_what_sells_units_twice_has_no_pace(runs: list[SaleRun]) -> None:
    assert rush.row(runs[0])[5:8] == ("", "", "")
    assert rush.row(runs[4])[5:8] == ("400", "10 ms", "10 ms")
    assert [run.scenario.slug for run in rush.compared(runs)] == [*RUSH_WAYS][1:]


@pytest.mark.parametrize("framework", ["django", "flask"])
def test_the_report_shows_the_views_as_they_stand_in_the_shop(framework: str) -> None:
    shown = {way: code_of_view(framework, way) for way in RUSH_WAYS}
    assert all(f"def {way}(" in view for way, view in shown.items())
    assert '@distributed_lock("product_<id>", fence=True, batch=32)' in shown["batched"]
    assert "distributed_lock" not in shown["conditional"]


def test_the_report_fits_a_phone_and_nothing_bars_a_reader(
    runs: list[SaleRun], tmp_path: Path, browser: Page
) -> None:
    file = tmp_path / "rush.html"
    write_rush(runs, stories.STORIES[stories.RUSH].crowd, file)
    for width in (1280, 390):
        browser.resize(width)
        browser.open(file.as_uri())
        boxes = "[...document.querySelectorAll('h2, h3, p, td, th, .bar')]"
        edges = browser.evaluate(f"{boxes}.map(one => one.getBoundingClientRect().right)")
        assert len(edges) > 50
        inside = browser.evaluate("document.querySelector('section').getBoundingClientRect().right")
        assert max(edges) <= inside <= width
    assert faults_everywhere(browser) == []


def test_each_commit_waits_for_as_long_as_the_story_says() -> None:
    with slow_postgresql() as url, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE written (number int)")
        connection.commit()
        taken = []
        for number in range(5):
            connection.execute("INSERT INTO written VALUES (%s)", [number])
            began = time.perf_counter()
            connection.commit()
            taken.append(time.perf_counter() - began)
    assert min(taken) >= stories.RUSH_COMMIT_PAUSE


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["up"], "leave out up"),
        (["--backend", "database"], "take another --backend"),
        (["--database", "sqlite"], "needs a postgresql of its own"),
        (["--database", "postgresql://shop@127.0.0.1/shop"], "needs a postgresql of its own"),
        (["--guard", "for-update"], "leave out --guard"),
        (["for-update"], "Did you mean 'for_update'?"),
    ],
)
def test_what_the_story_has_not_is_refused_with_the_reason(
    asked: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--story", "rush", *asked]) == 3
    assert told in " ".join(capsys.readouterr().err.split())
