from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.scenario import Outcome
from loadtest.verdict import Conclusion, Figures, Shelf, conclude, judge


def shelf(final: int, sold: int) -> dict[int, Shelf]:
    return {1: Shelf(100, final, sold)}


EXACT = Figures(
    shelves=shelf(0, 100),
    requests=500,
    answers={200: 100, 409: 400},
    refused=0,
    lost_orders=0,
    sold_by={"a": 51, "b": 49},
    served_by={"a": 250, "b": 250},
    instances=("a", "b"),
)
OVERSOLD = replace(EXACT, shelves=shelf(82, 500), answers={200: 500}, sold_by={"a": 250, "b": 250})


def test_everything_sold_once_is_exact() -> None:
    verdict = judge(EXACT)
    assert verdict.outcome is Outcome.EXACT
    assert not verdict.evidence
    assert not verdict.doubts


def test_more_orders_than_units_is_oversold() -> None:
    verdict = judge(OVERSOLD)
    assert verdict.outcome is Outcome.OVERSOLD
    assert verdict.evidence[0] == "500 units were sold, and there were only 100."


def test_a_stock_below_zero_is_oversold() -> None:
    run = replace(EXACT, shelves=shelf(-5, 105), answers={200: 105, 409: 395})
    assert judge(run).outcome is Outcome.OVERSOLD


def test_a_lost_update_is_oversold_even_while_units_are_left() -> None:
    run = replace(EXACT, shelves=shelf(25, 80), answers={200: 80, 409: 420})
    assert judge(run).outcome is Outcome.OVERSOLD


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (replace(EXACT, sold_by={"a": 100}), "The instance b sold nothing, so it took no part."),
        (replace(EXACT, sold_by={"a": 50, "b": 49, "c": 1}), "An unknown instance, c, sold something."),
        (replace(EXACT, answers={200: 100, 409: 399}), "500 requests were due, and 499 were made."),
        (replace(EXACT, answers={200: 100, 409: 399, 500: 1}), "Failed requests: 1."),
        (replace(EXACT, answers={200: 100, 409: 399, 0: 1}), "Failed requests: 1."),
        (replace(EXACT, answers={200: 100, 409: 399, 503: 1}), "Failed requests: 1."),
        (
            replace(EXACT, lost_orders=2),
            "2 orders were confirmed to their buyers and are not in the database.",
        ),
        (
            replace(EXACT, shelves=shelf(40, 60), answers={200: 60, 409: 440}),
            "Only 60 of 100 units were sold.",
        ),
        (
            replace(EXACT, shelves=shelf(0, 90), answers={200: 90, 409: 410}),
            "100 units left the shelf for only 90 sales.",
        ),
    ],
    ids=[
        "one instance sold nothing",
        "an unknown instance",
        "a request too few",
        "an error 500",
        "no answer",
        "an error 503 that is not the lock's",
        "a confirmed order is lost",
        "units are left",
        "units left without an order",
    ],
)
def test_an_odd_run_is_inconclusive_and_says_why(odd: Figures, reason: str) -> None:
    verdict = judge(odd)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert reason in verdict.doubts


def test_a_few_refusals_are_within_the_stated_share() -> None:
    run = replace(EXACT, answers={200: 100, 409: 375, 503: 25}, refused=25)
    assert judge(run).outcome is Outcome.EXACT


def test_a_lock_that_refuses_nearly_everybody_is_inconclusive() -> None:
    run = replace(
        EXACT, shelves=shelf(76, 24), answers={200: 24, 503: 476}, refused=476, sold_by={"a": 12, "b": 12}
    )
    verdict = judge(run)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "The lock refused 476 of 500 requests; a run counts up to 5%." in verdict.doubts


def test_one_refusal_too_many_is_inconclusive() -> None:
    run = replace(EXACT, answers={200: 100, 409: 374, 503: 26}, refused=26)
    assert judge(run).outcome is Outcome.INCONCLUSIVE


def test_a_locked_run_that_oversold_is_wrong_whatever_else_is_odd() -> None:
    run = replace(OVERSOLD, sold_by={"a": 500})
    assert conclude(Outcome.EXACT, run, judge(run), Conclusion.SHOWN) is Conclusion.WRONG


def test_an_unlocked_run_that_did_not_oversell_is_inconclusive() -> None:
    assert conclude(Outcome.OVERSOLD, EXACT, judge(EXACT), None) is Conclusion.INCONCLUSIVE


def test_an_unlocked_run_that_oversold_by_little_is_inconclusive() -> None:
    run = replace(EXACT, shelves=shelf(0, 105), answers={200: 105, 409: 395})
    assert judge(run).outcome is Outcome.OVERSOLD
    assert conclude(Outcome.OVERSOLD, run, judge(run), None) is Conclusion.INCONCLUSIVE


def test_an_unlocked_run_in_which_one_instance_sold_nothing_is_inconclusive() -> None:
    run = replace(OVERSOLD, sold_by={"a": 500})
    assert conclude(Outcome.OVERSOLD, run, judge(run), None) is Conclusion.INCONCLUSIVE


def test_an_unlocked_run_that_oversold_clearly_shows_what_it_must() -> None:
    assert conclude(Outcome.OVERSOLD, OVERSOLD, judge(OVERSOLD), None) is Conclusion.SHOWN


def test_an_exact_run_shows_what_it_must_if_its_control_oversold() -> None:
    assert conclude(Outcome.EXACT, EXACT, judge(EXACT), Conclusion.SHOWN) is Conclusion.SHOWN


@pytest.mark.parametrize("control", [Conclusion.INCONCLUSIVE, Conclusion.WRONG])
def test_an_exact_run_whose_control_showed_nothing_is_inconclusive(control: Conclusion) -> None:
    assert conclude(Outcome.EXACT, EXACT, judge(EXACT), control) is Conclusion.INCONCLUSIVE


CART = replace(EXACT, shelves={1: Shelf(50, 0, 50), 2: Shelf(50, 0, 50)})


def test_a_product_sold_too_often_is_not_made_up_for_by_another_that_was_left() -> None:
    run = replace(CART, shelves={1: Shelf(50, 0, 60), 2: Shelf(50, 10, 40)})
    verdict = judge(run)
    assert verdict.outcome is Outcome.OVERSOLD
    assert verdict.evidence[0] == "Product 1: 60 units were sold, and there were only 50."


def test_a_cart_of_which_one_product_left_the_shelf_without_an_order_is_odd() -> None:
    run = replace(CART, shelves={1: Shelf(50, 0, 50), 2: Shelf(50, 0, 49)})
    verdict = judge(run)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "Product 2: 50 units left the shelf for only 49 sales." in verdict.doubts


def test_where_one_unit_is_sold_each_instance_must_have_answered() -> None:
    """Two instances can't both sell it."""
    run = replace(EXACT, shelves={1: Shelf(1, 0, 1)}, sold_by={"a": 1})
    assert judge(run).outcome is Outcome.EXACT
    silent = judge(replace(run, served_by={"a": 500}))
    assert silent.outcome is Outcome.INCONCLUSIVE
    assert "The instance b answered nothing, so it took no part." in silent.doubts
