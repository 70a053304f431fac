"""The story of readers: reports beside purchases, and a gateway that takes five at a time.

It imports nothing that a bare Python lacks: the options are looked at before anything is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from demo_shop.configuration import IN_THE_DATABASE
from demo_shop.gateway import LIMIT
from demo_shop.guards import DISTRIBUTED
from loadtest.crowd import Crowd
from loadtest.rush import WHERE
from loadtest.scenario import PAIRS, Outcome, Scenario
from loadtest.verdict import Conclusion

BACKEND = "redis"
#: Those that have readers and permits: a row has neither here.
BACKENDS = ("file", "redis", "zookeeper")
WITHOUT = (IN_THE_DATABASE, "postgresql", "redlock")
STOCK, PRODUCTS = 16, 4
#: So many read reports, half as many buy, and so many pay.
CROWD = Crowd(users=16, purchases=10)
TORN, SHARED, UNLIMITED, LIMITED = "torn", "shared", "unlimited", "limited"
#: Two views of each pair, which differ only in the guard.
PATHS = {
    TORN: "/readers/report",
    SHARED: "/readers/report/shared",
    UNLIMITED: "/readers/pay",
    LIMITED: "/readers/pay/limited",
}
TITLES = {
    TORN: "reports without a lock",
    SHARED: 'reports with mode="shared"',
    UNLIMITED: "payments without a limit",
    LIMITED: f"payments with limit={LIMIT}",
}
CONTROLS = {SHARED: TORN, LIMITED: UNLIMITED}
#: How many have to be inside at once, or a lock for one alone would look the same.
TOGETHER = {SHARED: 2, LIMITED: LIMIT}


def scenarios(framework: str) -> tuple[Scenario, ...]:
    """Each control, which must go wrong, before the one that differs only in the guard."""
    return tuple(
        Scenario(
            slug,
            WHERE[framework],
            PAIRS[framework],
            DISTRIBUTED if slug in CONTROLS else "none",
            Outcome.EXACT if slug in CONTROLS else Outcome.BROKEN,
            CONTROLS.get(slug),
            called=title,
        )
        for slug, title in TITLES.items()
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """The numbers of one run."""

    #: Reports or payments that were answered, and how many of them were wrong: torn, or refused.
    answered: int
    wrong: int
    #: The most that were inside at one moment.
    together: int
    #: Requests, also purchases, that got another answer than they may.
    failed: int
    #: Answers by the instance that gave them.
    served_by: Mapping[str, int]
    instances: tuple[str, ...]
    #: Units of all products before the sale, and after it on the shelf and in the orders.
    initial: int
    left: int
    sold: int
    #: Whether everybody had come and gone when the time was over.
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scenario did, and what it means."""

    scenario: Scenario
    seen: Seen
    outcome: Outcome
    conclusion: Conclusion
    doubts: tuple[str, ...]


def judge(scenario: Scenario, seen: Seen, control: Conclusion | None) -> Reading:
    """*control* is what became of the same run without the guard."""
    doubts = tuple(doubts_of(scenario, seen))
    harmless = Outcome.INCONCLUSIVE if doubts else Outcome.EXACT
    outcome = Outcome.BROKEN if seen.wrong else harmless
    if scenario.must_be is Outcome.EXACT and outcome is Outcome.BROKEN:
        conclusion = Conclusion.WRONG
    elif outcome is not scenario.must_be or doubts or control not in (None, Conclusion.SHOWN):
        conclusion = Conclusion.INCONCLUSIVE
    else:
        conclusion = Conclusion.SHOWN
    return Reading(scenario, seen, outcome, conclusion, doubts)


def doubts_of(scenario: Scenario, seen: Seen) -> Iterator[str]:
    if not seen.ended:
        yield "It did not end in time."
    if seen.failed:
        yield f"Failed requests: {seen.failed}."
    for instance in seen.instances:
        if not seen.served_by.get(instance):
            yield f"The instance {instance} answered nothing, so it took no part."
    if seen.left + seen.sold != seen.initial:
        yield f"{seen.left} units are left and {seen.sold} were sold, of {seen.initial}: the sale is wrong."
    if scenario.slug in (TORN, SHARED) and not seen.sold:
        yield "Nothing was sold, so there was nothing to tear."
    if seen.together < (least := TOGETHER.get(scenario.slug, 0)):
        yield f"At most {seen.together} inside at once, and {least} have to be: it may be a lock for fewer."
