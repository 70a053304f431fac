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


@dataclass(frozen=True, slots=True)
class Result:
    """A target, and what came of it: of all rounds the median, the smallest, and the largest."""

    target: Target
    median: float
    low: float
    high: float

    @property
    def met(self) -> bool:
        return self.median >= self.target.bound if self.target.least else self.median <= self.target.bound

    def __str__(self) -> str:
        target, measure = self.target, MEASURES[self.target.measure]
        unit = f" x {target.peer}" if target.peer else ""
        digits = 2 if target.peer else max(1, measure.digits)
        median, low, high = (f"{figure:,.{digits}f}" for figure in (self.median, self.low, self.high))
        sign = ">=" if target.least else "<="
        return (
            f"{target.ours}, {measure.heading}: {median}{unit} ({low} to {high}), "
            f"target {sign} {target.bound:,.4g}: {'met' if self.met else 'MISSED'}"
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
        return Result(target, statistics.median(mine), min(mine), max(mine))

    @property
    def failed(self) -> bool:
        return bool(self.violations) or any(not result.met for result in self.results())
