"""The report, looked at in a browser: on a desk, and at the width of a phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo_shop.guards import GUARDS
from demo_shop.ledger import Ledger, Order
from loadtest.matrix import plan
from loadtest.moments import Moment
from loadtest.report import documents, words
from loadtest.report.documents import open_file, write_matrix, write_report
from loadtest.report.timeline import legend, rows, timeline
from loadtest.run import SaleRun
from loadtest.scenario import VISITS, story
from loadtest.stories import transactions_scenarios
from loadtest.verdict import Conclusion, Shelf, judge
from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Browser, Page
from tests.loadtest.test_verdict import EXACT, OVERSOLD
from tests.loadtest.test_words import run as run_of

BEGAN = 1_000_000.0
SCENARIOS = {scenario.slug: scenario for scenario in (*story("django"), *transactions_scenarios())}


def order(number: int, unit: int, instance: str) -> Order:
    at = datetime.fromtimestamp(BEGAN + number / 10, UTC)
    return Order(str(number), 1, 1, instance, unit, at)


def sale(slug: str, units: list[int], initial: int = 3) -> SaleRun:
    """A made-up run in which the instances sell *units* in turn."""
    instances = ("django-1", "django-2")
    orders = tuple(order(number, unit, instances[number % 2]) for number, unit in enumerate(units))
    left = units[-1] - 1
    figures = replace(
        OVERSOLD if len(units) > initial else EXACT,
        shelves={1: Shelf(initial, left, len(units))},
        sold_by={name: len(units) // 2 for name in instances},
        instances=instances,
    )
    answers = [
        {"at": 0.0, "ms": 9.0 + number, "wait_ms": 2.0 * number, "status": 200}
        for number in range(len(units))
    ]
    return replace(
        run_of(figures, []),
        scenario=SCENARIOS[slug],
        conclusion=Conclusion.SHOWN,
        verdict=judge(figures),
        began=BEGAN,
        duration=1.5,
        rows=answers,
        ledger=Ledger({1: left}, orders),
    )


def purchase(name: str, instance: str, stock: int, *at: float) -> list[Moment]:
    whats = ("granted", "read", "wrote", "released", "committed")
    stocks = (None, stock, stock - 1, None, None)
    return [
        Moment(BEGAN + when, instance, name, what, left)
        for when, what, left in zip(at, whats, stocks, strict=True)
    ]


@pytest.fixture(scope="module")
def runs() -> list[SaleRun]:
    early = purchase("1", "django-1", 3, 0.0, 0.01, 0.02, 0.03, 0.06)
    early += purchase("2", "django-2", 3, 0.04, 0.05, 0.07, 0.08, 0.09)
    return [
        sale("one-unlocked", [3, 3, 3, 2, 2, 2]),
        sale("two-process", [3, 3, 2, 2, 1, 1]),
        sale("two-distributed", [3, 2, 1]),
        replace(sale("commit-plain", [3, 3, 2, 2, 1, 1]), moments=tuple(early)),
    ]


@pytest.fixture(scope="module")
def page(runs: list[SaleRun], chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(runs, file)
    with chromium.tab() as page:
        page.open(file.as_uri())
        yield page


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off(page: Page, width: int) -> None:
    page.resize(width)
    # Each word of every timeline, plot and bar lies inside of the page.
    inside = f"box => box.left >= 0 && box.right <= {width}"
    texts = "[...document.querySelectorAll('h3, p, pre, td, th, .plot span')]"
    assert page.evaluate(f"{texts}.length") > 50
    assert page.evaluate(f"{texts}.map(one => one.getBoundingClientRect()).every({inside})")
    assert page.evaluate(f"{texts}.every(one => one.scrollWidth <= one.clientWidth || !one.clientWidth)")
    # Both instances of the timeline.
    assert page.text(".timeline thead").split() == ["Time", "django-1", "django-2"]


def test_nothing_bars_a_reader_by_day_or_by_night(page: Page) -> None:
    assert faults_everywhere(page) == []
    ground = "getComputedStyle(document.body).backgroundColor"
    page.prefer("dark")
    by_night = page.evaluate(ground)
    page.prefer("light")
    assert page.evaluate(ground) == "rgb(245, 246, 250)" != by_night


def test_the_matrix_fits_a_phone_and_nothing_bars_a_reader(
    runs: list[SaleRun], tmp_path: Path, browser: Page
) -> None:
    matrix = plan([VISITS["buy"]], ["postgresql"], ["mixed"], ["redis", "zookeeper", "database"])
    (row,) = matrix.rows
    matrix.controls[row] = runs[1]
    matrix.cells.update({(row, backend): runs[2] for backend in matrix.backends})
    file = tmp_path / "matrix.html"
    write_matrix(matrix, file)
    browser.resize(390)
    browser.open(file.as_uri())
    cells = "[...document.querySelectorAll('td')]"
    edges = browser.evaluate(f"{cells}.map(one => one.getBoundingClientRect().right)")
    assert len(edges) == 5
    assert max(edges) <= 390
    labels = browser.evaluate(f"{cells}.map(one => getComputedStyle(one, '::before').content)")
    assert "Lock in zookeeper" in " ".join(labels)
    assert faults_everywhere(browser) == []


def test_it_begins_with_the_servers_and_says_what_is_right_in_one_mark(
    page: Page, runs: list[SaleRun]
) -> None:
    assert page.text("h1 + p") == "Lock service: file, a directory of this host. Database: sqlite."
    assert [words.result(run) for run in runs] == [
        "sold too much, as it must without a lock",
        "sold too much, as it must with a lock in each instance alone",
        "sold exactly what there was",
        "sold too much, as it must with a lock that ends before COMMIT",
    ]
    assert page.text("#one-unlocked .badge") == "sold too much, as it must without a lock"
    assert "oversold" not in page.text("#one-unlocked")
    assert page.text("#two-distributed pre").strip() == '@distributed_lock("product_<id>")'


def test_each_plot_has_a_conclusion_of_its_own(runs: list[SaleRun]) -> None:
    assert words.of_all_sales(runs) == (
        "3 of 4 sales sold units that do not exist; 1 sold all units, and each of them once."
    )
    assert [words.of_sale(run) for run in runs[:3:2]] == [
        (
            "The two lines part: 6 units were sold, and only 2 left the stock, because buyers overwrote each "
            "other's change."
        ),
        "The lines mirror each other: each unit that was sold left the stock, 3 in all.",
    ]
    assert words.of_times(runs[:3]) == (
        "Two instances, distributed lock: half of the purchases waited 2 ms or less for the lock, and the "
        "whole sale took 1.5 s; without that guard it took 1.5 s."
    )


@pytest.mark.parametrize("conclusion", [Conclusion.WRONG, Conclusion.INCONCLUSIVE])
def test_what_went_wrong_is_run_again_next(conclusion: Conclusion, runs: list[SaleRun]) -> None:
    odd = replace(runs[3], conclusion=conclusion)
    assert words.result(odd).startswith(conclusion.upper() if conclusion == "wrong" else conclusion)
    (step,) = words.next_steps([*runs[:3], odd])
    assert step[0] == "scripts/demo --story transactions commit-plain"


def test_a_timeline_has_a_bar_while_the_lock_is_held_and_after(runs: list[SaleRun]) -> None:
    shown = timeline(runs[3])
    assert shown
    lines = rows(shown)
    assert [row.milliseconds for row in lines] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    first = [row.cells[0] for row in lines]
    assert first[0].styles.split() == ["is-granted", "down-held"]
    assert first[3].styles.split() == ["is-released", "up-held", "down-committing"]
    # Between two moments of its own, while the other one has the lock.
    assert (first[4].text, first[4].styles) == ("", "up-committing down-committing")
    assert first[6].styles.split() == ["is-committed", "up-committing"]
    assert "twice" in first[1].styles
    assert list(legend(shown.spans)) == ["held", "committing"]


@pytest.mark.parametrize("low", [0, -7])
@pytest.mark.parametrize("high", [0.004, 1, 3, 36, 99.9, 100, 12345])
def test_a_scale_has_a_few_round_numbers(low: float, high: float) -> None:
    numbers = documents.scale(low, high)
    assert 1 <= len(numbers) <= documents.LINES + 1
    assert all(low <= number <= high for number in numbers)
    assert 0 in numbers


def test_a_stock_below_zero_is_drawn_inside_of_the_plot(runs: list[SaleRun]) -> None:
    run = replace(runs[0], ledger=Ledger({1: -1}, (order(1, 1, "a"), order(2, 0, "b"))))
    drawn = documents.stock_over_time(run)
    heights = [float(part.split("H")[0]) for part in drawn.stock.split("V")[1:]]
    assert max(heights) == 100.0
    assert 0 <= drawn.limit < 100


def test_runs_do_not_overwrite_each_other(tmp_path: Path) -> None:
    files = {open_file(tmp_path, "instances-file-sqlite") for _ in range(3)}
    assert len(files) == 3
    assert all(file.parent == tmp_path and "instances-file-sqlite" in file.name for file in files)
    assert open_file(tmp_path / "mine.html", "matrix") == tmp_path / "mine.html"


def test_each_guard_has_its_line_of_code() -> None:
    assert all(guard.line for guard in GUARDS.values())
