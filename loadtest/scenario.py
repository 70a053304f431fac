"""The scenarios of the story: how many instances, which guard, and what must be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Outcome(StrEnum):
    OVERSOLD = "oversold"
    EXACT = "exact"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Scenario:
    slug: str
    title: str
    #: The framework of each instance.
    instances: tuple[str, ...]
    guard: str
    must_be: Outcome
    #: The scenario that differs only in the guard. It must oversell, or this one proves nothing.
    control: str | None = None


STORY = (
    Scenario(
        "one-unlocked",
        "one instance, no lock",
        ("django",),
        "none",
        Outcome.OVERSOLD,
    ),
    Scenario(
        "one-process",
        "one instance, process lock",
        ("django",),
        "process",
        Outcome.EXACT,
        control="one-unlocked",
    ),
    Scenario(
        "two-process",
        "two instances, process lock",
        ("django", "django"),
        "process",
        Outcome.OVERSOLD,
    ),
    Scenario(
        "two-distributed",
        "two instances, distributed lock",
        ("django", "django"),
        "distributed",
        Outcome.EXACT,
        control="two-process",
    ),
    Scenario(
        "mixed-process",
        "a Django and a Flask instance, process lock",
        ("django", "flask"),
        "process",
        Outcome.OVERSOLD,
    ),
    Scenario(
        "mixed-distributed",
        "a Django and a Flask instance, distributed lock",
        ("django", "flask"),
        "distributed",
        Outcome.EXACT,
        control="mixed-process",
    ),
)
FRAMEWORKS = ("django", "flask", "mixed")


def story(framework: str) -> tuple[Scenario, ...]:
    """The story, its plain scenarios served by *framework*; the mixed ones stay what they are."""
    if framework == "mixed":
        # Two instances are then the Django and the Flask one, which have scenarios of their own.
        return tuple(scenario for scenario in STORY if not scenario.slug.startswith("two-"))
    return tuple(
        scenario
        if scenario.slug.startswith("mixed-")
        else replace(scenario, instances=(framework,) * len(scenario.instances))
        for scenario in STORY
    )
