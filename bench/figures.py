"""Figures of locks: measures and how they are computed, tables, and the targets that judge them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.buyers import at
from bench.contest import Part
from bench.services import ServerWork

#: The figures of one contestant in one round, by the names of `MEASURES`.
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of a table."""

    #: The heading, with the unit to which *scale* converts seconds, counts or shares.
    heading: str
    scale: float = 1.0
    digits: int = 0

    def shown(self, figure: float) -> str:
        return f"{figure * self.scale:,.{self.digits}f}"


MEASURES = {
    "rate": Measure("acquisitions/s"),
    "sales": Measure("sales/s"),
    "answer": Measure("median answer, ms", 1e3),
    "late_answer": Measure("p99 answer, ms", 1e3),
    "longest_answer": Measure("longest answer, ms", 1e3),
    "site_cpu": Measure("CPU of the site, ms a sale", 1e3, 2),
    "database_cpu": Measure("CPU of the database, ms a sale", 1e3, 2),
    "pair": Measure("µs a pair", 1e6, 1),
    "pass": Measure("CPU of a pair, µs", 1e6, 1),
    "p50": Measure("median wait, ms", 1e3, 2),
    "p99": Measure("p99 wait, ms", 1e3, 1),
    "hand_over": Measure("median hand-off, ms", 1e3, 2),
    "longest": Measure("longest wait, ms", 1e3),
    "makespan": Measure("until all had it, ms", 1e3, 1),
    "served": Measure("served of what was offered, %", 1e2),
    "changes": Measure("owner changes, threads, %", 1e2),
    "process_changes": Measure("processes, %", 1e2),
    "refused": Measure("refused"),
    "poll": Measure("server time of a poll, µs", 1e6),
    "poll_again": Measure("s until the next one", 1.0, 1),
    "core": Measure("all polls, % of a core", 1e2, 1),
    "few_share": Measure("what the few got, %", 1e2, 1),
    "few_p99": Measure("their p99 wait, ms", 1e3, 1),
    "few_longest": Measure("their longest wait, ms", 1e3),
    "jain": Measure("Jain index", 1.0, 3),
    "wakes": Measure("wake-ups", 1.0, 1),
    "cpu": Measure("CPU here, s/1,000", 1e3, 3),
    "server_cpu": Measure("CPU of the server, s/1,000", 1e3, 3),
    "requests": Measure("requests", 1.0, 2),
    "commands": Measure("server commands", 1.0, 1),
}


def jain(counts: Sequence[int]) -> float:
    """Return Jain's index of fairness: 1 if all got equally much, 1 / n if one of n got everything."""
    squares = len(counts) * sum(count * count for count in counts)
    return sum(counts) ** 2 / squares if squares else 0.0


def of_contest(parts: Sequence[Part], begin: float, work: ServerWork) -> Figures:
    """Return the figures of a contest that began at *begin*, and in which the server did *work*."""
    waits = sorted(wait for part in parts for wait in part.waits)
    gaps = sorted(gap for part in parts for gap in part.hand_overs)
    counts = [count for part in parts for count in part.entered]
    acquired, seconds = len(waits), max(part.ended for part in parts) - begin
    return {
        "rate": acquired / seconds,
        "makespan": seconds,
        "p50": at(waits, 0.5),
        "p99": at(waits, 0.99),
        "longest": waits[-1],
        **({"hand_over": at(gaps, 0.5) / 1e9} if gaps else {}),
        "changes": sum(part.changes for part in parts) / max(1, acquired - 1),
        "process_changes": sum(part.process_changes for part in parts) / max(1, acquired - 1),
        "jain": jain(counts),
        **({"wakes": wakes / acquired} if (wakes := sum(part.wakes for part in parts)) else {}),
        "cpu": sum(part.cpu for part in parts) / acquired,
        **of_work(work, acquired),
    }


def of_few(parts: Sequence[Part]) -> Figures:
    """Return the figures of the last process, which has fewer threads than the others."""
    waits = sorted(parts[-1].waits)
    acquired = sum(len(part.waits) for part in parts)
    return {"few_share": len(waits) / acquired, "few_p99": at(waits, 0.99), "few_longest": waits[-1]}


def of_work(work: ServerWork, acquired: int) -> Figures:
    """Return the work of the server per acquisition, without figures that the server does not report."""
    told = {"requests": work.requests, "commands": work.commands, "server_cpu": work.cpu}
    return {name: figure / acquired for name, figure in told.items() if figure}


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that our lock has to reach, or its ratio to the figure of a *peer* in the same round.

    *bound* is the minimum if *least*, else the maximum. Without a *peer*, its unit is that of the heading.
    """

    measure: str
    bound: float
    peer: str = ""
    least: bool = False
    ours: str = "distlock"
    #: Whether each round has to reach the bound, and not only the median.
    each: bool = False
    #: The heading in docs/explanation/performance-targets.md that says why the target is missed.
    why: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.least else "<="
        peer, rounds = f" x {self.peer}" if self.peer else "", " in each round" if self.each else ""
        return f"{self.ours}, {MEASURES[self.measure].heading} {sign} {self.bound:,.4g}{peer}{rounds}"


@dataclass(frozen=True, slots=True)
class Result:
    """A target, and the median, the smallest and the largest figure of all rounds."""

    target: Target
    median: float
    low: float
    high: float
    #: Whether a lock in the table did not exclude, so that its figures mean nothing.
    void: bool = False

    @property
    def met(self) -> bool:
        if self.void:
            return False
        bound = self.target.bound
        return self.judged >= bound if self.target.least else self.judged <= bound

    @property
    def judged(self) -> float:
        """The figure that is compared with the bound: the median, or the worst round's."""
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
        # Show one digit more than the table, so that a figure that misses a bound does not look equal to it.
        digits = 3 if self.target.peer else max(1, MEASURES[self.target.measure].digits) + 1
        return f"{figure:,.{digits}f}"

    def __str__(self) -> str:
        return (
            f"target {self.target}: {self.shown_median} ({self.shown_range}), "
            f"{'met' if self.met else 'VOID' if self.void else 'MISSED'}"
        )


@dataclass(slots=True)
class Table:
    """The figures of all contestants under one setting of a row."""

    row: str
    title: str
    #: By contestant, a list of rounds. Rounds with the same index were measured in direct succession.
    rounds: dict[str, list[Figures]]
    #: The columns to show: keys of `MEASURES`.
    measures: Sequence[str]
    targets: Sequence[Target] = ()
    #: Sentences that a reader needs beside the figures.
    notes: list[str] = field(default_factory=list)
    #: The locks that did not exclude; one makes the whole table void.
    violations: list[str] = field(default_factory=list)
    #: The peers that could not be measured, and why.
    lost: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[str]:
        """The columns of which at least one contestant has a figure."""
        return [
            measure
            for measure in self.measures
            if any(measure in each for rounds in self.rounds.values() for each in rounds)
        ]

    def spread(self, contestant: str, measure: str) -> tuple[float, float, float] | None:
        """Return the median, smallest and largest figure of *contestant*; None if it has no such figure."""
        figures = [each[measure] for each in self.rounds[contestant] if measure in each]
        return (statistics.median(figures), min(figures), max(figures)) if figures else None

    def results(self) -> list[Result]:
        return [made for target in self.targets if (made := self._result(target))]

    def _result(self, target: Target) -> Result | None:
        """Return the result of *target*; None if one of its contestants was not measured."""
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
        """The targets with a contestant that was not measured."""
        return [target for target in self.targets if not self._result(target)]

    @property
    def failed(self) -> bool:
        return bool(self.violations) or any(not result.met for result in self.results())
