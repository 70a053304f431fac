"""What a row is measured with: crews that take turns on one server, round for round."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bench.alone import Pairs
from bench.contest import Contest, Plan
from bench.crew import BenchError, Crew
from bench.java_crew import KINDS as JAVA
from bench.java_crew import JavaCrew
from bench.measures import Figures, of_contest, of_few, of_work
from bench.oracle import Oracle
from bench.services import Services
from bench.table import Table, Target

#: Between the moment that the processes are told to begin and that in which all do, seconds: for the crew,
#: and for each thread of it.
START, START_OF_THREAD = 0.1, 0.001
CONTEST = (
    "rate",
    "p50",
    "p99",
    "longest",
    "hand_over",
    "changes",
    "process_changes",
    "jain",
    "wakes",
    "cpu",
    "server_cpu",
    "requests",
    "commands",
)
ALONE = ("pair", "cpu", "server_cpu", "requests", "commands")


@dataclass(frozen=True, slots=True)
class Usual:
    """How thorough a run is, unless it is told otherwise."""

    rounds: int
    seconds: float
    pairs: int


WHOLE, QUICK = Usual(5, 1.5, 1000), Usual(3, 0.5, 300)
#: Of what no target speaks of, rounds at most.
LIGHT = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One of those that are compared in a contest."""

    crew: Crew | JavaCrew
    plan: Plan
    #: How many of the crew take part; None: all.
    processes: int | None = None
    #: What tells it from other entries of the crew.
    suffix: str = ""
    #: Called with the seconds of a round when that begins, in a thread of its own.
    meanwhile: Callable[[float], None] | None = None

    @property
    def name(self) -> str:
        return self.crew.kind + self.suffix


@dataclass(frozen=True, slots=True)
class Bench:
    """How thorough a run is, and with what."""

    services: Services
    #: How often each contestant is measured.
    rounds: int = WHOLE.rounds
    #: Of one contest, seconds.
    seconds: float = WHOLE.seconds
    #: Pairs of one round, where nobody else wants the lock.
    pairs: int = WHOLE.pairs
    #: Only what carries a target.
    quick: bool = False
    #: The peers that are measured; None: all.
    beside: Collection[str] | None = None
    #: Whether those in Java are measured, too.
    java: bool = False

    def is_asked_for(self, kind: str) -> bool:
        """Whether *kind* is measured; ours always is."""
        if kind in JAVA:
            return self.java
        return kind.startswith("distlock") or self.beside is None or kind in self.beside

    def few(self, kinds: Sequence[str], more: Sequence[str]) -> Sequence[str]:
        """*kinds*, and *more* where there is time."""
        return kinds if self.quick else (*kinds, *more)

    def thorough(self, usual: Sequence[float], more: Sequence[float]) -> Sequence[float]:
        """*usual*, and *more* where there is time."""
        return usual if self.quick else (*usual, *more)

    def lightly(self) -> Bench:
        """For what no target speaks of: fewer rounds, and shorter ones."""
        return replace(self, rounds=min(self.rounds, LIGHT), seconds=self.seconds / 2, pairs=self.pairs // 2)

    @contextmanager
    def crews(
        self, kinds: Sequence[str], size: int, service: str, distance: float = 0.0
    ) -> Iterator[list[Crew]]:
        """A crew of *size* processes for each of *kinds* that was asked for."""
        url = self.services.url(service, distance)
        with ExitStack() as stack:
            crews = []
            for kind in filter(self.is_asked_for, kinds):
                crews.append(JavaCrew(size, kind, url) if kind in JAVA else Crew(size, kind, url))
                stack.callback(crews[-1].end)
            yield crews

    def in_turns(
        self,
        measured: Mapping[str, Callable[[], Figures]],
        warm_up: Callable[[str], object] = lambda name: None,
        lost: list[str] | None = None,
    ) -> dict[str, list[Figures]]:
        """What each finds, by name and round. Each round has another order.

        *warm_up*: called with each name before the first round. *lost*: is told which peers could not be
        measured, and why; None: that is an error, as it is of ours.
        """
        found: dict[str, list[Figures]] = {name: [] for name in measured}
        for number in range(-1, self.rounds):
            for name in random.sample(list(found), len(found)):
                try:
                    if number < 0:
                        warm_up(name)
                    else:
                        found[name].append(measured[name]())
                except BenchError as error:
                    if lost is None or name.startswith("distlock"):
                        raise
                    del found[name]
                    lost.append(f"{name}: {str(error).splitlines()[-1]}")
        return found

    def alone(
        self, row: str, title: str, crews: Sequence[Crew], service: str, targets: Sequence[Target] = ()
    ) -> Table:
        """One thread, while nobody else wants the lock."""

        def measure(crew: Crew) -> Figures:
            before = self.services.work(service)
            (spent,) = crew.do([Pairs(self.pairs)])
            work = self.services.work(service) - before
            return {"pair": spent.seconds, "cpu": spent.cpu, **of_work(work, self.pairs)}

        by_name, lost = {crew.kind: crew for crew in crews}, list[str]()
        rounds = self.in_turns(
            {name: partial(measure, crew) for name, crew in by_name.items()},
            lambda name: by_name[name].do([Pairs(self.pairs // 10)]),
            lost,
        )
        return Table(row, title, rounds, ALONE, targets, lost=lost)

    def contest(
        self,
        row: str,
        title: str,
        entries: Sequence[Entry],
        service: str,
        targets: Sequence[Target] = (),
        measures: Sequence[str] = CONTEST,
    ) -> Table:
        """The processes of each want one lock. That it excludes is checked in each round."""
        violations: list[str] = []
        oracle = Oracle.make(self.services.directory)

        def measure(entry: Entry) -> Figures:
            oracle.clear()
            plan, meanwhile = entry.plan, entry.meanwhile
            numbers = range(entry.processes or entry.crew.size)
            start = START + START_OF_THREAD * plan.threads * len(numbers)
            before, begin = self.services.work(service), time.monotonic() + start
            tasks = [Contest(plan, oracle.path, one, begin, last=one == numbers[-1]) for one in numbers]
            with beside(partial(meanwhile, plan.seconds) if meanwhile else None):
                parts = entry.crew.do(tasks)
            work = self.services.work(service) - before
            entered, broken = sum(len(part.waits) for part in parts), sum(part.violations for part in parts)
            if broken or oracle.entered != entered:
                violations.append(
                    f"{entry.name}: {broken} times two were inside or a fence did not grow, and "
                    f"{entered - oracle.entered} of {entered} entries were overwritten."
                )
            if entry.crew.kind.startswith("distlock") and not oracle.fence:
                violations.append(f"{entry.name}: it gave no fence, so none was seen to grow.")
            figures = of_contest(parts, begin, work)
            if plan.few:
                figures |= of_few(parts)
            if plan.think:
                figures["served"] = figures["rate"] * plan.think / (plan.threads * len(parts))
            return figures

        def warm_up(name: str) -> None:
            entry = by_name[name]
            measure(replace(entry, plan=replace(entry.plan, seconds=entry.crew.warm_up), meanwhile=None))

        by_name, lost = {entry.name: entry for entry in entries}, list[str]()
        measured = {name: partial(measure, entry) for name, entry in by_name.items()}
        rounds = self.in_turns(measured, warm_up, lost)
        return Table(row, title, rounds, measures, targets, violations=violations, lost=lost)


@contextmanager
def beside(task: Callable[[], None] | None) -> Iterator[None]:
    """*task* runs in a thread. Raises what it raised."""
    if task is None:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task)
        yield
        running.result()
