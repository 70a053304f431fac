"""What came of a row: figures by contestant and round, and the targets that they are held to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.measures import MEASURES, Figures


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio to a peer in the same round, or a figure by itself, that ours has to reach.

    *bound*: as much at least where *least*, else at most; in the unit of its heading if there is no *peer*.
    """

    measure: str
    bound: float
    peer: str = ""
    least: bool = False
    ours: str = "distlock"
    #: Whether each round has to reach it, and not only their median.
    each: bool = False
    #: The anchor in docs/explanation/performance-targets.md of the reason why it is missed.
    why: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.least else "<="
        peer, rounds = f" x {self.peer}" if self.peer else "", " in each round" if self.each else ""
        return f"{self.ours}, {MEASURES[self.measure].heading} {sign} {self.bound:,.4g}{peer}{rounds}"


@dataclass(frozen=True, slots=True)
class Result:
    """A target, and what came of it: of all rounds the median, the smallest, and the largest."""

    target: Target
    median: float
    low: float
    high: float
    #: Whether a lock in its table did not exclude: then the figures say nothing.
    void: bool = False

    @property
    def met(self) -> bool:
        if self.void:
            return False
        bound = self.target.bound
        return self.judged >= bound if self.target.least else self.judged <= bound

    @property
    def judged(self) -> float:
        """The figure that the bound is compared with: the median, or the worst round."""
        if not self.target.each:
            return self.median
        return self.low if self.target.least else self.high

    @property
    def shown_judged(self) -> str:
        return self._shown(self.judged)

    @property
    def shown_median(self) -> str:
        return self._shown(self.median)

    @property
    def shown_range(self) -> str:
        return f"{self._shown(self.low)} to {self._shown(self.high)}"

    def _shown(self, figure: float) -> str:
        # One digit more than the table has: what misses a bound must not look like it.
        digits = 3 if self.target.peer else max(1, MEASURES[self.target.measure].digits) + 1
        return f"{figure:,.{digits}f}"

    def __str__(self) -> str:
        return (
            f"target {self.target}: {self.shown_median} ({self.shown_range}), "
            f"{'met' if self.met else 'VOID' if self.void else 'MISSED'}"
        )


@dataclass(slots=True)
class Table:
    """One setting of a row: the same for all contestants."""

    row: str
    title: str
    #: By contestant, then by round: rounds of the same number stood beside each other.
    rounds: dict[str, list[Figures]]
    #: What its tables show, of `measures.MEASURES`.
    measures: Sequence[str]
    targets: Sequence[Target] = ()
    #: What a reader has to know beside the figures.
    notes: list[str] = field(default_factory=list)
    #: The locks that did not exclude: then nothing here counts.
    violations: list[str] = field(default_factory=list)
    #: The peers that could not be measured, and why.
    lost: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[str]:
        """The measures that at least one of them has."""
        return [
            measure
            for measure in self.measures
            if any(measure in each for rounds in self.rounds.values() for each in rounds)
        ]

    def spread(self, contestant: str, measure: str) -> tuple[float, float, float] | None:
        """The median of its rounds, the smallest, and the largest; None where it has no such figure."""
        figures = [each[measure] for each in self.rounds[contestant] if measure in each]
        return (statistics.median(figures), min(figures), max(figures)) if figures else None

    def results(self) -> list[Result]:
        return [made for target in self.targets if (made := self._result(target))]

    def _result(self, target: Target) -> Result | None:
        """None if one of the two was not measured."""
        if target.ours not in self.rounds or (target.peer and target.peer not in self.rounds):
            return None
        mine = [each[target.measure] for each in self.rounds[target.ours]]
        if target.peer:
            theirs = [each[target.measure] for each in self.rounds[target.peer]]
            mine = [one / other for one, other in zip(mine, theirs, strict=True)]
        else:
            mine = [one * MEASURES[target.measure].scale for one in mine]
        return Result(target, statistics.median(mine), min(mine), max(mine), bool(self.violations))

    @property
    def not_judged(self) -> list[Target]:
        """The targets that speak of somebody who was not measured."""
        return [target for target in self.targets if not self._result(target)]

    @property
    def failed(self) -> bool:
        return bool(self.violations) or any(not result.met for result in self.results())
