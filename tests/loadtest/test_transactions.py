"""The story of transactions: run as a person runs it, and its verdict and timelines from made-up notes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest import stories
from loadtest.__main__ import main
from loadtest.moments import Moment, StoppedPurchase, by_purchase, early_releases, read_moments
from loadtest.report import words
from loadtest.report.timeline import timeline
from loadtest.run import SaleRun
from loadtest.scenario import Outcome
from loadtest.verdict import Conclusion, Figures, Stall, conclude, judge
from tests.loadtest.command import loadtest
from tests.loadtest.test_verdict import EXACT, OVERSOLD, shelf
from tests.loadtest.test_words import run as run_of

SCENARIOS = {scenario.slug: scenario for scenario in stories.transactions_scenarios()}
STORY = stories.STORIES[stories.TRANSACTIONS]
STALL = Stall(seconds=1.5, ttl=1.0, passed_on=True, sold_meanwhile=5, status=200, code=None, resold=1)
REFUSED = replace(STALL, status=503, code="lock_lost", resold=0)


def test_a_lock_that_ends_before_commit_and_one_that_ran_out_oversell_and_the_fence_does_not(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.html"
    # The story's own size, not the small one.
    size = [
        "--users",
        str(STORY.crowd.users),
        "--purchases",
        str(STORY.crowd.purchases),
    ]
    size += ["--stock", str(STORY.stock)]
    done = loadtest("--story", "transactions", *size, "--json", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {run["scenario"]: run for run in json.loads(done.stdout)["scenarios"]}
    assert {slug: run["outcome"] for slug, run in runs.items()} == {
        "commit-plain": "oversold",
        "commit-distributed": "exact",
        "stopped-unfenced": "oversold",
        "stopped-fenced": "exact",
        "late-unfenced": "oversold",
        "late-fenced": "exact",
    }
    figures = {slug: run["figures"] for slug, run in runs.items()}
    assert figures["commit-plain"]["early_releases"] > (STORY.stock or 0)
    assert figures["commit-distributed"]["early_releases"] == 0
    for slug in ("stopped-fenced", "late-fenced"):
        assert (figures[slug]["stall"]["status"], figures[slug]["stall"]["code"]) == (503, "lock_lost")
    # The others sold on where the stopped one held nothing in the database, and waited where it did.
    assert figures["late-fenced"]["stall"]["sold_meanwhile"] >= 4
    assert figures["stopped-fenced"]["stall"]["sold_meanwhile"] == 0
    page = report.read_text()
    for told in ("SIGSTOP: the process stands still", "refused by the fence: 503 lock_lost", "COMMIT"):
        assert told in page
    assert page.count("What came after what") == 6


def stopped(stall: Stall | None, figures: Figures = EXACT) -> Figures:
    refused = int(bool(stall and stall.refused))
    answers = {200: figures.answers[200], 409: 500 - figures.answers[200] - refused, 503: refused}
    return replace(figures, stops=True, stall=stall, answers=answers, refused=refused)


ONE_TOO_MANY = replace(EXACT, shelves=shelf(0, 101), answers={200: 101, 409: 399})


def test_one_unit_too_many_is_enough_where_it_is_known_which_one() -> None:
    figures = stopped(STALL, ONE_TOO_MANY)
    assert conclude(Outcome.OVERSOLD, figures, judge(figures), None) is Conclusion.SHOWN


def test_a_stopped_purchase_that_was_refused_leaves_the_run_exact() -> None:
    figures = stopped(REFUSED)
    assert conclude(Outcome.EXACT, figures, judge(figures), Conclusion.SHOWN) is Conclusion.SHOWN


@pytest.mark.parametrize(
    ("figures", "doubt"),
    [
        (stopped(None), "No purchase was stopped."),
        (
            stopped(replace(REFUSED, passed_on=False)),
            "The lock was not passed on while its holder was stopped.",
        ),
        (stopped(STALL), "The stopped purchase was answered 200, and not 503 lock_lost."),
        (stopped(replace(STALL, status=0)), "The purchase that was stopped got no answer."),
        (
            stopped(replace(STALL, resold=0), ONE_TOO_MANY),
            "The unit of the stopped purchase was sold to nobody else: something else was sold twice.",
        ),
        (
            replace(OVERSOLD, early_releases=0),
            "No purchase released the lock before its COMMIT: something else was sold twice.",
        ),
        (
            replace(EXACT, early_releases=3),
            "3 purchases released the lock before their COMMIT was done.",
        ),
        (
            replace(EXACT, untold_orders=1),
            "1 orders are in the database, and their buyers were not told of them.",
        ),
        (replace(EXACT, ended=False), "The sale did not end in time."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_shows_something_else_is_inconclusive(figures: Figures, doubt: str) -> None:
    verdict = judge(figures)
    assert doubt in verdict.doubts
    for must_be in (Outcome.OVERSOLD, Outcome.EXACT):
        assert conclude(must_be, figures, verdict, Conclusion.SHOWN) is not Conclusion.SHOWN


@pytest.mark.parametrize("slug", [slug for slug, one in SCENARIOS.items() if one.control])
def test_each_control_differs_only_in_the_guard(slug: str) -> None:
    locked = SCENARIOS[slug]
    control = SCENARIOS[str(locked.control)]
    assert control.must_be is Outcome.OVERSOLD
    assert (control.guard, control.fence) != (locked.guard, locked.fence)
    same = replace(control, slug=slug, guard=locked.guard, fence=locked.fence)
    assert same == replace(locked, must_be=Outcome.OVERSOLD, control=None)


def notes(*lines: str) -> tuple[Moment, ...]:
    """``at instance purchase what [stock]``"""
    moments = []
    for line in lines:
        at, instance, purchase, what, *stock = line.split()
        known: dict[str, Any] = {"stock": int(stock[0])} if stock else {}
        if what == "answered":
            known = {"status": 503, "code": "lock_lost"}
        moments.append(Moment(float(at), instance, purchase, what, **known))
    return tuple(moments)


def noted(
    slug: str, figures: Figures, moments: tuple[Moment, ...], stop: StoppedPurchase | None = None
) -> SaleRun:
    figures = replace(figures, instances=("a", "b"))
    return replace(run_of(figures, [1]), scenario=SCENARIOS[slug], moments=moments, stopped=stop)


EARLY = notes(
    "1.00 a 1 granted",
    "1.01 a 1 read 5",
    "1.02 a 1 wrote 4",
    "1.03 a 1 released",
    "1.04 b 2 granted",
    "1.05 b 2 read 5",
    "1.06 a 1 committed",
    "1.07 b 2 wrote 4",
    "1.08 b 2 released",
    "1.09 b 2 committed",
)


def test_a_release_before_commit_is_counted_and_drawn() -> None:
    assert early_releases(EARLY) == 2
    run = noted("commit-plain", OVERSOLD, EARLY)
    shown = timeline(run)
    assert shown is not None
    assert [mark.text for mark in shown.marks if mark.twice] == ["reads 5", "reads 5"]
    assert [span.what for span in shown.spans] == ["held", "committing"] * 2
    assert words.told(run) == (
        "a releases the lock 30 ms before its COMMIT is done, and b gets it: "
        "it reads the same 5, and sells the same unit."
    )


def test_a_holder_that_is_refused_by_the_fence_is_drawn_with_what_the_other_sold() -> None:
    moments = notes(
        "1.00 a 1 granted",
        "2.00 b 2 granted",
        "2.01 b 2 read 5",
        "2.02 b 2 wrote 4",
        "2.03 b 2 committed",
        "2.04 b 2 released",
        "2.05 b 3 granted",
        "2.06 b 3 read 4",
        "2.07 b 3 wrote 3",
        "2.08 b 3 committed",
        "2.09 b 3 released",
        "3.10 a 1 released",
        "3.11 a 1 answered",
    )
    run = noted("late-fenced", stopped(REFUSED), moments, StoppedPurchase("a", "1", 1.01, 3.01))
    shown = timeline(run)
    assert shown is not None
    assert [mark.text for mark in shown.marks] == [
        "gets the lock",
        "SIGSTOP: the process stands still",
        "gets the lock",
        "reads 5",
        "writes 4",
        "COMMIT",
        "has let the lock go",
        "… sells 1 more: 3 left",
        "SIGCONT: goes on after 2.0 s",
        "refused by the fence: 503 lock_lost",
    ]
    # Held until another one gets it, and believed to be held until the refusal.
    assert [(span.what, span.since, span.until) for span in shown.spans if span.instance == "a"] == [
        ("held", 1.0, 2.0),
        ("believed", 2.0, 3.11),
        ("stopped", 1.01, 3.01),
    ]
    assert "came to the fence with its older number, and was refused" in words.told(run)


def test_half_a_line_is_left_for_the_next_look(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    line = json.dumps({"at": 1.0, "instance": "a", "purchase": "1", "what": "granted"})
    journal.write_text(f"{line}\n{line[:20]}")
    assert list(by_purchase(read_moments(str(journal)))) == ["1"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--backend", "file"], "--story transactions needs redis"),
        (["--database", "sqlite"], "--story transactions needs postgresql"),
        (["--framework", "flask"], "--story transactions is told in django"),
        (["--visit", "cart"], "has guards and buyers of its own"),
        (["--matrix"], "leave out this --story"),
        (["two-distributed"], "with --story transactions there is no scenario 'two-distributed'"),
    ],
)
def test_what_the_story_can_not_be_told_with_is_refused(
    asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--story", "transactions", *asked]) == 3
    assert said in capsys.readouterr().err
