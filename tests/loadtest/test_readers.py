"""The story of readers: run as a person runs it on each service, and its verdict from made-up figures."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from demo_shop.configuration import Configuration
from demo_shop.remote_services import GATEWAY_LIMIT, charge
from loadtest.readers import (
    ReadersFigures,
    Reading,
    in_all,
    in_every_cell,
    judge,
    matrix_summary,
    most,
    open_gateway,
    why_not,
)
from loadtest.report.documents import write_readers
from loadtest.scenario import Outcome
from loadtest.stories import LIMITED, READERS_CONTROLS, SHARED, TORN, UNLIMITED, readers_scenarios
from loadtest.verdict import Conclusion
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page
from tests.loadtest.command import loadtest

SCENARIOS = {scenario.slug: scenario for scenario in readers_scenarios("mixed")}
GOOD = ReadersFigures(
    100, 0, GATEWAY_LIMIT, 0, {"django-1": 50, "flask-2": 50}, ("django-1", "flask-2"), 64, 0, 64
)
BAD = replace(GOOD, wrong=3)
FRAMEWORKS = {"redis": "mixed", "zookeeper": "django", "file": "flask"}


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_reports_and_payments_are_exact_with_their_guard_and_not_without(
    backend: str, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    asked = ["--story", "readers", "--backend", backend, "--framework", FRAMEWORKS[backend], "--json"]
    done = loadtest(*asked, "--report", str(page), "--users", "16", "--stock", "16")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {run["scenario"]: run for run in json.loads(done.stdout)["scenarios"]}
    assert {slug: run["outcome"] for slug, run in found.items()} == {
        TORN: "broken",
        SHARED: "exact",
        UNLIMITED: "broken",
        LIMITED: "exact",
    }
    assert found[SHARED]["figures"]["together"] > 1
    assert found[LIMITED]["figures"]["together"] == GATEWAY_LIMIT
    assert "Every scenario went as expected" in page.read_text()


def test_the_matrix_is_as_good_as_its_worst_cell() -> None:
    def story(slug: str, seen: ReadersFigures) -> list[Reading]:
        seen_by = {TORN: BAD, SHARED: GOOD, UNLIMITED: BAD, LIMITED: GOOD, slug: seen}
        return [judge(SCENARIOS[one], seen_by[one], Conclusion.SHOWN) for one in SCENARIOS]

    good, bad = story(SHARED, GOOD), story(SHARED, BAD)
    assert in_every_cell({("mixed", "redis"): good, ("django", "file"): good}).startswith("Every scenario")
    cells = {("mixed", "redis"): good, ("mixed", "file"): bad}
    assert in_every_cell(cells).startswith("WRONG")
    rows = matrix_summary(cells).splitlines()
    (row,) = (row for row in rows if row.startswith("mixed"))
    assert re.split(r"  +", row) == ["mixed", "3, 0; 3, 0", "3, 3; 3, 0 ?"]
    assert any("mixed, file, " in row for row in rows)


@pytest.mark.parametrize("slug", READERS_CONTROLS)
def test_a_guard_that_lets_one_through_is_wrong_whatever_its_control_did(slug: str) -> None:
    reading = judge(SCENARIOS[slug], BAD, Conclusion.INCONCLUSIVE)
    assert (reading.outcome, reading.conclusion) == (Outcome.BROKEN, Conclusion.WRONG)
    assert in_all([reading]).startswith("WRONG")


@pytest.mark.parametrize("slug", READERS_CONTROLS)
def test_a_guard_proves_nothing_where_nothing_goes_wrong_without_it(slug: str) -> None:
    control = judge(SCENARIOS[READERS_CONTROLS[slug]], GOOD, None)
    assert control.conclusion is Conclusion.INCONCLUSIVE
    assert "Nothing went wrong without the guard" in why_not(control)[-1]
    guarded = judge(SCENARIOS[slug], GOOD, control.conclusion)
    assert guarded.conclusion is Conclusion.INCONCLUSIVE
    assert judge(SCENARIOS[slug], GOOD, Conclusion.SHOWN).conclusion is Conclusion.SHOWN


@pytest.mark.parametrize(
    ("slug", "odd", "told"),
    [
        (SHARED, replace(GOOD, together=1), "At most 1 inside at once, and 2 have to be"),
        (LIMITED, replace(GOOD, together=4), "At most 4 inside at once, and 5 have to be"),
        (SHARED, replace(GOOD, failed=2), "Failed requests: 2."),
        (SHARED, replace(GOOD, served_by={"django-1": 100}), "flask-2 answered nothing"),
        (SHARED, replace(GOOD, left=64, sold=0), "Nothing was sold"),
        (SHARED, replace(GOOD, left=1), "the sale is wrong"),
        (LIMITED, replace(GOOD, ended=False), "did not end in time"),
    ],
)
def test_what_is_odd_about_a_run_is_told_and_proves_nothing(
    slug: str, odd: ReadersFigures, told: str
) -> None:
    reading = judge(SCENARIOS[slug], odd, Conclusion.SHOWN)
    assert reading.conclusion is Conclusion.INCONCLUSIVE
    assert told in " ".join(why_not(reading))


def test_the_report_fits_a_phone_and_nothing_bars_a_reader(tmp_path: Path, browser: Page) -> None:
    file = tmp_path / "readers.html"
    write_readers([judge(one, BAD, None) for one in SCENARIOS.values()], "redis", "sqlite", file)
    for width in (1280, 390):
        browser.resize(width)
        browser.open(file.as_uri())
        boxes = "[...document.querySelectorAll('h1, h2, p')]"
        edges = browser.evaluate(f"{boxes}.map(one => one.getBoundingClientRect().right)")
        assert max(edges) <= width
    assert faults_everywhere(browser) == []


def test_the_gateway_counts_who_is_inside_and_refuses_those_above_its_limit() -> None:
    with open_gateway() as gateway:
        shop, together, paid = Configuration(gateway=gateway.url), threading.Barrier(4 * GATEWAY_LIMIT), []

        def pay() -> None:
            together.wait(30)
            for _ in range(5):
                paid.append(charge(shop))  # noqa: PERF401  # others append, too

        payers = [threading.Thread(target=pay, daemon=True) for _ in range(4 * GATEWAY_LIMIT)]
        for payer in payers:
            payer.start()
        for payer in payers:
            payer.join(60)
        assert (gateway.taken, gateway.refused) == (paid.count(True), paid.count(False))
        assert gateway.refused
        assert gateway.most > GATEWAY_LIMIT
        gateway.begin()
        assert charge(shop)
        assert (gateway.most, gateway.taken, gateway.refused) == (1, 1, 0)


def test_reports_that_only_touch_are_not_at_once() -> None:
    assert most([(0.0, 1.0), (1.0, 2.0), (1.5, 3.0)]) == 2
    assert most([]) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["up"], "leave out up"),
        (["--backend", "database"], "take another --backend"),
        (["--guard", "for-update"], "leave out --guard"),
        (["share"], "Did you mean 'shared'?"),
    ],
)
def test_what_the_story_has_not_is_refused_with_the_reason(asked: list[str], told: str) -> None:
    done = loadtest("--story", "readers", *asked)
    assert done.returncode == 3
    assert told in " ".join(done.stderr.split())
