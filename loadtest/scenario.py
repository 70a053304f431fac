"""The scenarios of the story: how many instances, which guard, and what must be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED, GUARDS


class Outcome(StrEnum):
    OVERSOLD = "oversold"
    EXACT = "exact"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Stop:
    """The first instance is stopped in its first purchase, until the others have had their turn."""

    #: In which moment of it: see `demo_shop.moments`.
    at: str
    #: How many units the others sell before it goes on; None: all that are left.
    sold: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    #: The arrangement of the instances and the guard, by their short names.
    slug: str
    #: How the arrangement is called.
    where: str
    #: The framework of each instance.
    instances: tuple[str, ...]
    guard: str
    must_be: Outcome
    #: The scenario that differs only in the guard. It must oversell, or this one proves nothing.
    control: str | None = None
    #: Whether the guard passes the fence.
    fence: bool = False
    #: Whether the transaction is the framework's, around the whole view; and how long its COMMIT takes.
    atomic_requests: bool = False
    commit_pause: float = 0.0
    stop: Stop | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it is about which moment comes before which."""
        return self.atomic_requests or self.stop is not None

    @property
    def title(self) -> str:
        return f"{self.where}, {GUARDS[self.guard].title}{' and fence' if self.fence else ''}"

    def furnish(self, shop: Configuration) -> Configuration:
        """*shop* as this scenario needs it."""
        return replace(
            shop,
            guard=self.guard,
            # Where the story is what happens without it, it stays off.
            fence=self.fence or (shop.fence and self.stop is None),
            atomic_requests=shop.atomic_requests or self.atomic_requests,
            commit_pause=self.commit_pause or shop.commit_pause,
        )


def pair(slug: str, where: str, instances: tuple[str, ...], broken: str, mended: str) -> tuple[Scenario, ...]:
    """The scenario that oversells, and the one that differs only in the guard."""
    control = Scenario(f"{slug}-{broken}", where, instances, broken, Outcome.OVERSOLD)
    return control, replace(
        control, slug=f"{slug}-{mended}", guard=mended, must_be=Outcome.EXACT, control=control.slug
    )


FRAMEWORKS = ("django", "flask", "mixed")
MIXED = "a Django and a Flask instance"
#: What each framework's name stands for where there are two instances.
PAIRS = {"django": ("django", "django"), "flask": ("flask", "flask"), "mixed": ("django", "flask")}


def story(framework: str, guard: str = DISTRIBUTED) -> tuple[Scenario, ...]:
    """The story: its plain scenarios served by *framework*, and *guard* where all instances need one."""
    plain = PAIRS[framework][:1]
    told = pair("one", "one instance", plain, "none", "process")
    told = (replace(told[0], slug="one-unlocked"), replace(told[1], control="one-unlocked"))
    # In the mixed story, two instances are the Django and the Flask one: see below.
    if framework != "mixed":
        told += pair("two", "two instances", PAIRS[framework], "process", guard)
    return told + pair("mixed", MIXED, PAIRS["mixed"], "process", guard)


def unlocked(framework: str) -> Scenario:
    """Two instances and no lock: for a shop that is opened, to see it go wrong."""
    slug, where = ("mixed", MIXED) if framework == "mixed" else ("two", "two instances")
    return Scenario(f"{slug}-unlocked", where, PAIRS[framework], "none", Outcome.OVERSOLD)


STORY = story("django")
