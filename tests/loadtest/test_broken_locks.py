"""The harness is tried on locks that are known to be broken: none of them gets a green run."""

from __future__ import annotations

import json

from tests.loadtest.command import loadtest


def test_a_lock_that_does_nothing_is_reported_as_oversold() -> None:
    done = loadtest("two-distributed", "--json", SHOP_LOCK_BACKEND="tests.loadtest.broken_locks.DoesNothing")
    assert done.returncode == 1, done.stdout + done.stderr
    control, broken = json.loads(done.stdout)["scenarios"]
    assert control["conclusion"] == "shown"
    assert (broken["outcome"], broken["conclusion"]) == ("oversold", "wrong")
    assert broken["figures"]["sold"] > 30


def test_a_lock_that_refuses_nearly_everybody_is_inconclusive() -> None:
    # A refused purchase takes as long as a client waits for its lock service: two each.
    done = loadtest(
        *("two-distributed", "--json", "--purchases", "2", "--stock", "12"),
        SHOP_LOCK_BACKEND="tests.loadtest.broken_locks.RefusesNearlyEverybody",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    broken = json.loads(done.stdout)["scenarios"][-1]
    assert (broken["outcome"], broken["conclusion"]) == ("inconclusive", "inconclusive")
    assert broken["figures"]["refused"] > 32
    assert any(doubt.startswith("The lock refused") for doubt in broken["doubts"])
