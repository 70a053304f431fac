"""A sale that hangs is one inconclusive run, and those after it are still held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo_shop.configuration import Configuration
from loadtest import run
from loadtest.scenario import STORY, VISITS
from loadtest.verdict import Conclusion


def test_a_sale_that_hangs_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LONGEST_SALE", 3.0)
    hanging = replace(STORY[0], instances=("flask",))
    shop = Configuration(stock=5, pause=30.0)
    done = run.run_scenario(hanging, VISITS["buy"], shop, run.BuyerCrowd(2, 1), "file")
    assert done.conclusion is Conclusion.INCONCLUSIVE
    assert "The sale did not end in time." in done.verdict.doubts
    assert "2 requests were due, and 0 were made." in done.verdict.doubts
