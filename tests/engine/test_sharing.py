"""Readers, writers and permits in every order that the scheduler draws, with and without faults."""

from __future__ import annotations

from typing import Any

import pytest

from distlock.backends.base import EXCLUSIVE, PERMIT, READ
from distlock.testing.history import check_history
from tests.engine.sharing import LIMIT, Sharing, most_out
from tests.engine.simulation import Faults

SEEDS = range(100)

FAULTS = {
    "no fault": Faults(),
    "cancelled": Faults(cancel=0.05),
    "reply lost": Faults(lost_reply=0.05),
    "request lost": Faults(lost_request=0.05),
    "stopped": Faults(stop=0.01),
    "killed": Faults(kill=0.002),
    "stalled": Faults(stall=0.02),
    "all at once": Faults(
        cancel=0.02, lost_reply=0.02, lost_request=0.02, stop=0.005, kill=0.001, stall=0.01
    ),
}


def play(seed: int, **arguments: Any) -> Sharing:
    simulation = Sharing(seed, **arguments)
    assert simulation.run() == [], f"seed {seed}"
    return simulation


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_readers_share_and_writers_are_alone(faults: Faults) -> None:
    for seed in SEEDS:
        simulation = play(seed, faults=faults)
        assert check_history(simulation.history) == [], f"seed {seed}"


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_no_more_permits_are_out_than_there_are(faults: Faults) -> None:
    for seed in SEEDS:
        simulation = play(seed, faults=faults, modes=[PERMIT, PERMIT, EXCLUSIVE, READ])
        assert max(most_out(simulation.permits).values(), default=0) <= LIMIT, f"seed {seed}"
        assert check_history(simulation.history) == [], f"seed {seed}"


def test_limits_that_differ_halt_nobody() -> None:
    for seed in SEEDS:
        simulation = play(seed, modes=[PERMIT], limits=[2, 5])
        assert max(most_out(simulation.permits).values(), default=0) <= 5, f"seed {seed}"


def test_readers_do_share() -> None:
    """Else all of the above would hold of a plain lock."""
    overlaps = 0
    for seed in SEEDS[:20]:
        reads = [one for one in play(seed).history if one.mode == READ]
        overlaps += sum(
            one is not other and one.name == other.name and one.granted < other.granted < (one.released or 0)
            for one in reads
            for other in reads
        )
    assert overlaps > 100
