from __future__ import annotations

import pytest

from loadtest.scenario import FRAMEWORKS, Outcome, story


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_locked_scenario_has_a_control_that_differs_only_in_the_guard(framework: str) -> None:
    scenarios = story(framework, "for-update")
    known = {scenario.slug: scenario for scenario in scenarios}
    for scenario in scenarios:
        if scenario.must_be is Outcome.EXACT:
            assert scenario.control is not None
            control = known[scenario.control]
            assert control.must_be is Outcome.OVERSOLD
            assert control.instances == scenario.instances
            assert control.guard != scenario.guard
            assert scenarios.index(control) < scenarios.index(scenario)


def test_another_guard_takes_the_place_of_the_distributed_lock_and_of_nothing_else() -> None:
    usual, other = story("django"), story("django", "conditional")
    assert [one.slug for one in other if one not in usual] == ["two-conditional", "mixed-conditional"]


@pytest.mark.parametrize(
    ("framework", "pair"),
    [("django", ("django", "django")), ("flask", ("flask", "flask"))],
)
def test_the_plain_scenarios_are_served_by_the_chosen_framework(
    framework: str, pair: tuple[str, ...]
) -> None:
    told = {scenario.slug: scenario.instances for scenario in story(framework)}
    assert told["two-distributed"] == pair
    assert told["one-unlocked"] == pair[:1]
    assert told["mixed-distributed"] == ("django", "flask")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_experiment_is_told_twice(framework: str) -> None:
    experiments = [(scenario.instances, scenario.guard) for scenario in story(framework)]
    assert len(set(experiments)) == len(experiments)


def test_the_mixed_story_has_its_two_instances_once_and_calls_them_by_their_frameworks() -> None:
    assert [scenario.slug for scenario in story("mixed")] == [
        "one-unlocked",
        "one-process",
        "mixed-process",
        "mixed-distributed",
    ]
