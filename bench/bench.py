"""What a row is measured with: crews that take turns on one server, round for round."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.alone import Pairs
from bench.contest import Contest, Plan
from bench.crew import Crew
from bench.measures import Figures, of_contest, of_work
from bench.oracle import Oracle
from bench.services import Services
from bench.table import Table, Target

#: Between the moment that the processes are told to begin and that in which all do, seconds.
START = 0.1
CONTEST = (
    "rate",
    "p50",
    "p99",
    "changes",
    "process_changes",
    "jain",
    "cpu",
    "server_cpu",
    "requests",
    "commands",
)
ALONE = ("pair", "cpu", "server_cpu", "requests", "commands")


@dataclass(frozen=True, slots=True)
class Bench:
    """How thorough a run is, and with what."""

    services: Services
    #: How often each contestant is measured.
    rounds: int = 5
    #: Of one contest, seconds.
    seconds: float = 3.0
    #: Pairs of one round, where nobody else wants the lock.
    pairs: int = 1000
    #: Only what carries a target.
    quick: bool = False
    #: The peers that are measured; None: all.
    beside: Collection[str] | None = None

    def contestants(self, kinds: Sequence[str]) -> list[str]:
        """Those of *kinds* that were asked for; ours always is."""
        return [
            kind
            for kind in kinds
            if kind.startswith("distlock") or self.beside is None or kind in self.beside
        ]

    def thorough(self, usual: Sequence[float], more: Sequence[float]) -> Sequence[float]:
        """*usual*, and *more* where there is time."""
        return usual if self.quick else (*usual, *more)

    @contextmanager
    def crews(
        self, kinds: Sequence[str], size: int, service: str, distance: float = 0.0
    ) -> Iterator[list[Crew]]:
        """A crew of *size* processes for each of *kinds* that was asked for."""
        url = self.services.url(service, distance)
        with ExitStack() as stack:
            crews = []
            for kind in self.contestants(kinds):
                crews.append(Crew(size, kind, url))
                stack.callback(crews[-1].end)
            yield crews

    def in_turns(self, crews: Sequence[Crew], measure: Callable[[Crew], Figures]) -> dict[str, list[Figures]]:
        """What *measure* finds of each, by name. Each round has another order; the first doesn't count."""
        measured: dict[str, list[Figures]] = {crew.kind: [] for crew in crews}
        for number in range(self.rounds + 1):
            for crew in random.sample(crews, len(crews)):
                figures = measure(crew)
                if number:
                    measured[crew.kind].append(figures)
        return measured

    def alone(
        self, row: str, title: str, crews: Sequence[Crew], service: str, targets: Sequence[Target]
    ) -> Table:
        """One thread, while nobody else wants the lock."""

        def measure(crew: Crew) -> Figures:
            before = self.services.work(service)
            (spent,) = crew.do([Pairs(self.pairs)])
            work = self.services.work(service) - before
            return {"pair": spent.seconds, "cpu": spent.cpu, **of_work(work, self.pairs)}

        return Table(row, title, self.in_turns(crews, measure), ALONE, targets)

    def contest(
        self,
        row: str,
        title: str,
        crews: Sequence[Crew],
        service: str,
        plan: Plan,
        targets: Sequence[Target] = (),
        processes: int | None = None,
        measures: Sequence[str] = CONTEST,
    ) -> Table:
        """*processes* of each crew (None: all) want one lock. That it excludes is checked in each round."""
        violations: list[str] = []
        oracle = Oracle.make(self.services.directory)

        def measure(crew: Crew) -> Figures:
            oracle.clear()
            before, begin = self.services.work(service), time.monotonic() + START
            parts = crew.do(
                [Contest(plan, oracle.path, number, begin) for number in range(processes or crew.size)]
            )
            work = self.services.work(service) - before
            entered = sum(len(part.waits) for part in parts)
            broken = sum(part.violations for part in parts)
            if broken or oracle.entered != entered:
                violations.append(
                    f"{crew.kind}: {broken} times two were inside or a fence did not grow, and "
                    f"{entered - oracle.entered} of {entered} entries were overwritten."
                )
            figures = of_contest(parts, begin, work)
            if plan.think:
                figures["served"] = figures["rate"] * plan.think / (plan.threads * len(parts))
            return figures

        return Table(row, title, self.in_turns(crews, measure), measures, targets, violations=violations)
