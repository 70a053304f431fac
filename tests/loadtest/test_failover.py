"""The story of failovers: its scenarios, and its verdict and words from made-up numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.__main__ import main
from loadtest.moments import Moment, StoppedPurchase
from loadtest.report import words
from loadtest.report.documents import write_report
from loadtest.report.terminal import table
from loadtest.run import SaleRun, absence_of
from loadtest.scenario import Outcome
from loadtest.servers.lock_services import OUTAGES, Outage
from loadtest.stories import failover_scenarios
from loadtest.verdict import Absence, Conclusion, Figures, conclude, judge
from tests.loadtest.test_transactions import REFUSED, STALL
from tests.loadtest.test_verdict import EXACT, OVERSOLD
from tests.loadtest.test_words import run as run_of

SCENARIOS = {scenario.slug: scenario for scenario in failover_scenarios()}
FORGETS = next(outage for outage in OUTAGES if outage.forgets)
KEEPS = next(outage for outage in OUTAGES if not outage.forgets)
STRUCK = StoppedPurchase("django-1", "1", since=10.0, until=14.0)
AWAY = replace(EXACT, absence=Absence(2.5, 14.0))


def granted(*moments: float) -> tuple[Moment, ...]:
    return tuple(Moment(at, "django-2", str(number), "granted") for number, at in enumerate(moments))


def told(slug: str, figures: Figures) -> SaleRun:
    return replace(run_of(figures, []), scenario=SCENARIOS[slug])


@pytest.mark.parametrize("slug", [slug for slug, one in SCENARIOS.items() if one.control])
def test_two_of_a_kind_differ_only_in_the_fence(slug: str) -> None:
    fenced = SCENARIOS[slug]
    control = SCENARIOS[str(fenced.control)]
    assert fenced == replace(control, slug=slug, fence=True, must_be=Outcome.EXACT, control=control.slug)
    assert control.outage is not None
    assert (control.must_be is Outcome.OVERSOLD) == control.outage.forgets


@pytest.mark.parametrize("figures", [EXACT, OVERSOLD], ids=["exact", "oversold"])
def test_what_chance_decides_is_told_and_not_judged(figures: Figures) -> None:
    assert conclude(Outcome.EITHER, figures, judge(figures), None) is Conclusion.SHOWN
    doubtful = replace(figures, ended=False)
    assert conclude(Outcome.EITHER, doubtful, judge(doubtful), None) is Conclusion.INCONCLUSIVE


@pytest.mark.parametrize(
    ("outage", "moments", "seconds"),
    [
        # Nobody asks who is let in later, by a fence whose row is locked.
        (FORGETS, granted(9.0, 12.0, 20.0), 2.0),
        (KEEPS, granted(9.0, 10.5, 14.0, 14.1), 3.5),
        (KEEPS, granted(9.0), None),
    ],
)
def test_a_service_is_away_until_it_gives_somebody_the_lock(
    outage: Outage, moments: tuple[Moment, ...], seconds: float | None
) -> None:
    assert absence_of(outage, STRUCK, 10.0, moments) == Absence(seconds, 10.0 + outage.takes)


def test_an_outage_that_never_came_is_none() -> None:
    assert absence_of(KEEPS, None, 10.0, granted(1.0)).seconds is None


@pytest.mark.parametrize(
    ("absence", "doubt"),
    [
        (Absence(None, 14.0), "Nobody was granted the lock after the outage."),
        (Absence(14.5, 14.0), "Nobody was granted the lock for 14.5 s: expected are 14 s."),
    ],
)
def test_a_service_that_does_not_come_back_in_time_proves_nothing(absence: Absence, doubt: str) -> None:
    figures = replace(EXACT, absence=absence)
    verdict = judge(figures)
    assert verdict.doubts == (doubt,)
    assert conclude(Outcome.EXACT, figures, verdict, None) is Conclusion.INCONCLUSIVE


def test_refusals_while_it_is_away_are_right() -> None:
    refused = {"answers": {200: 100, 409: 300, 503: 100}, "refused": 100}
    assert judge(replace(EXACT, **refused)).doubts  # type: ignore[arg-type]
    assert not judge(replace(AWAY, **refused)).doubts  # type: ignore[arg-type]


def test_one_that_comes_to_the_fence_before_the_others_sells_its_unit() -> None:
    assert not judge(replace(AWAY, stops=True, stall=replace(STALL, resold=0))).doubts


@pytest.mark.parametrize(
    ("stall", "said"),
    [
        (REFUSED, "The purchase inside was refused before COMMIT: nothing had happened."),
        (STALL, "The purchase inside went on, and so did the next: both sold one unit."),
        (
            replace(STALL, resold=0),
            "The purchase inside had come to the fence first; the others were refused, and asked again.",
        ),
    ],
)
def test_what_became_of_the_one_inside_is_told(stall: object, said: str) -> None:
    run = told(f"{FORGETS.slug}-fenced", replace(AWAY, stops=True, stall=stall))  # type: ignore[arg-type]
    assert words.told(run) == (f"{FORGETS.why}; 2.50 s without service, and 14 s at most. {said}")


def test_the_table_and_the_last_line_tell_of_the_outage() -> None:
    run = told(f"{KEEPS.slug}-fenced", AWAY)
    assert table([run]).splitlines()[0].split()[-1] == "away"
    assert "2.50 s  as expected" in table([run])
    assert "what a lock service forgets" in words.in_all([run])


def test_a_report_of_several_lock_services_names_none_of_them_first(tmp_path: Path) -> None:
    runs = [
        replace(told(slug, AWAY), backend=slug.partition("-")[0])
        for slug in ("sentinel-replaced-fenced", "cluster-moved-fenced")
    ]
    write_report(runs, tmp_path / "several.html")
    assert "Lock service:" not in (tmp_path / "several.html").read_text()
    write_report(runs[:1], tmp_path / "one.html")
    assert "Lock service: redis with two replicas" in (tmp_path / "one.html").read_text()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--backend", "file"], "--story failover needs a lock service that goes on"),
        (["--framework", "flask"], "--story failover is told in django"),
        (["--visit", "cart"], "has guards and buyers of its own"),
        (["up"], "leave out up"),
        (["--matrix"], "leave out this --story"),
        (["--backend", "redlock", "cluster-moved-fenced"], "there is no scenario 'cluster-moved-fenced'"),
    ],
)
def test_what_the_story_can_not_be_told_with_is_refused(
    asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--story", "failover", *asked]) == 3
    assert said in capsys.readouterr().err
