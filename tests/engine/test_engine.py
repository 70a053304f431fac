from __future__ import annotations

import pytest

from distlock.testing.history import check_history
from tests.engine.simulation import NAMES, Faults, Simulation

SEEDS = range(150)


def play(seed: int, **arguments: object) -> Simulation:
    simulation = Simulation(seed, **arguments)  # type: ignore[arg-type]
    assert simulation.run() == []
    return simulation


def test_every_interleaving_is_that_of_a_lock() -> None:
    for seed in SEEDS:
        simulation = play(seed)
        assert check_history(simulation.history) == [], f"seed {seed}"
        assert len(simulation.history) > 20


@pytest.mark.parametrize(
    "faults",
    [
        Faults(cancel=0.05),
        Faults(lost_reply=0.05),
        Faults(lost_request=0.05),
        Faults(stop=0.01),
        Faults(kill=0.002),
        Faults(ahead=0.3),
        Faults(ahead=0.3, cancel=0.02, lost_reply=0.05, stop=0.01, kill=0.001),
        Faults(stall=0.02),
        Faults(cancel=0.02, lost_reply=0.02, lost_request=0.02, stop=0.005, kill=0.001, stall=0.01),
    ],
    ids=[
        "cancelled",
        "reply lost",
        "request lost",
        "stopped",
        "killed",
        "behind",
        "behind and more",
        "stalled",
        "all at once",
    ],
)
def test_faults_cost_time_but_no_exclusion_and_no_wake_up(faults: Faults) -> None:
    for seed in SEEDS:
        simulation = play(seed, faults=faults)
        assert check_history(simulation.history) == [], f"seed {seed}"


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(lost_answer=0.1),
        Faults(lost_answer=0.1, cancel=0.02, lost_reply=0.02, lost_request=0.02, stop=0.005, kill=0.001),
    ],
    ids=["no fault", "answer lost", "all at once"],
)
def test_releases_that_nobody_waits_for_cost_no_exclusion_and_no_wake_up(faults: Faults) -> None:
    for seed in SEEDS[:75]:
        simulation = play(seed, faults=faults, posts=True)
        assert check_history(simulation.history) == [], f"seed {seed}"


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(ahead=0.3),
        Faults(stop=0.02),
        Faults(ahead=0.1, cancel=0.02, lost_reply=0.02, lost_request=0.02, stop=0.005, kill=0.001),
    ],
    ids=["no fault", "behind", "stopped", "all at once"],
)
def test_to_begin_on_a_push_costs_no_exclusion_and_no_wake_up(faults: Faults) -> None:
    begun = 0
    for seed in SEEDS[:100]:
        simulation = play(seed, faults=faults, pushes=True)
        assert check_history(simulation.history) == [], f"seed {seed}"
        begun += simulation.begun_on_push
    assert begun > 100


def test_within_a_process_it_is_first_come_first_served() -> None:
    for seed in SEEDS:
        simulation = play(seed, processes=1)
        for name in NAMES:
            history = [record for record in simulation.history if record.name == name]
            by_fence = sorted(history, key=lambda record: record.fence)
            assert [record.asked for record in by_fence] == sorted(record.asked for record in history)
