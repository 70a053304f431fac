"""The sentences that are told of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from demo_shop.guards import GUARDS
from demo_shop.sale import Ledger, Order
from loadtest.report import words
from loadtest.run import SaleRun
from loadtest.scenario import FRAMEWORKS, STORY, VISITS, story
from loadtest.verdict import Conclusion, Figures, Shelf, judge

EXACT = Figures(
    shelves={1: Shelf(100, 0, 100)},
    requests=500,
    answers={200: 100, 409: 400},
    refused=0,
    lost_orders=0,
    sold_by={"a": 100},
    served_by={"a": 500},
    instances=("a",),
)
OVERSOLD = replace(EXACT, shelves={1: Shelf(100, 94, 500)}, answers={200: 500}, sold_by={"a": 500})


def run(figures: Figures, units: list[int]) -> SaleRun:
    orders = tuple(Order(str(unit), 1, 1, "a", unit, datetime.now(UTC)) for unit in units)
    return SaleRun(
        STORY[0],
        VISITS["buy"],
        "file",
        "sqlite",
        figures,
        judge(figures),
        Conclusion.SHOWN,
        1.0,
        0.0,
        [],
        Ledger({1: figures.final}, orders),
    )


def test_an_oversold_run_counts_orders_and_sales_not_buyers() -> None:
    assert words.what_happened(run(OVERSOLD, [95] * 3 + [94] * 55)) == (
        "500 orders were confirmed for 100 units. The shop believes that 94 are left. "
        "Unit 94 alone was sold 55 times."
    )


def test_an_exact_run_counts_orders_and_purchases_not_buyers() -> None:
    assert words.what_happened(run(EXACT, [])) == (
        "100 orders were confirmed for 100 units. 400 purchases were told “sold out”. "
        "No unit was sold twice, none was left."
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("guard", [slug for slug in GUARDS if slug not in ("none", "process")])
def test_each_scenario_has_its_reason(framework: str, guard: str) -> None:
    for scenario in story(framework, guard):
        assert words.why(replace(run(EXACT, []), scenario=scenario))


def test_an_article_s_page_that_tells_nobody_of_an_order_is_not_said_to_have_told() -> None:
    told = words.what_happened(replace(run(EXACT, []), visit=VISITS["reduce"]))
    assert "sold out" not in told
