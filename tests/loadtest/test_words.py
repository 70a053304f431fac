"""The sentences that are told of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from demo_shop.ledger import Ledger, Order
from loadtest import words
from loadtest.run import Run
from loadtest.scenario import STORY
from loadtest.verdict import Conclusion, Figures, judge

EXACT = Figures(
    initial=100,
    final=0,
    orders=100,
    requests=500,
    answers={200: 100, 409: 400},
    refused=0,
    lost_orders=0,
    sold_by={"a": 100},
    instances=("a",),
)
OVERSOLD = replace(EXACT, final=94, orders=500, answers={200: 500}, sold_by={"a": 500})


def run(figures: Figures, units: list[int]) -> Run:
    orders = tuple(Order(str(unit), "a", unit, datetime.now(UTC)) for unit in units)
    return Run(
        STORY[0],
        "file",
        figures,
        judge(figures),
        Conclusion.SHOWN,
        1.0,
        0.0,
        [],
        Ledger(figures.final, orders),
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


def test_each_scenario_has_its_reason() -> None:
    assert words.WHY.keys() == {scenario.slug for scenario in STORY}
