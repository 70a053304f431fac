"""The best of the exhibits, as the guard of two instances behind nginx: the load test sees what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo_shop.configuration import Configuration
from loadtest.run import run_scenario
from loadtest.scenario import BUY, VISITS, BuyerCrowd, Outcome, Scenario


@pytest.mark.parametrize(
    ("guard", "outcome"), [("redis-step-5", Outcome.OVERSOLD), ("distributed", Outcome.EXACT)]
)
def test_the_load_test_tells_the_best_exhibit_from_a_lock(guard: str, outcome: Outcome) -> None:
    scenario = Scenario(guard, "two instances", ("flask", "flask"), guard, Outcome.EXACT)
    # The shop thinks for longer than ten renewals last.
    shop = VISITS[BUY].furnish(replace(Configuration(), lock_ttl=0.2), stock=3, pause=1.0)
    # So few that none of them is expected to wait in vain.
    run = run_scenario(scenario, VISITS[BUY], shop, BuyerCrowd(users=3, purchases=5), "redis")
    assert run.verdict.outcome is outcome, run.verdict
