"""The bench: crews take turns on one server, round by round, and their figures become tables."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bench.contest import Contest, ContestPlan, Oracle, Pairs
from bench.crew import JAVA_KINDS, BenchError, Crew, JavaCrew
from bench.figures import Figures, Table, Target, of_contest, of_few, of_work
from bench.services import Services

#: Seconds from the order to begin until all threads begin: for the crew, and in addition for each thread.
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
    """The default thoroughness of a run: rounds, seconds of a contest, and pairs without contention."""

    rounds: int
    seconds: float
    pairs: int


WHOLE, QUICK = Usual(5, 1.5, 1000), Usual(3, 0.5, 300)
#: The most rounds of a measurement that has no target.
LIGHT = 3


@dataclass(frozen=True, slots=True)
class Contestant:
    """A lock in a contest, and what is done with it."""

    crew: Crew | JavaCrew
    plan: ContestPlan
    #: How many processes of the crew take part; None: all.
    processes: int | None = None
    #: Tells this contestant from others of the same crew.
    suffix: str = ""
    #: Called in a separate thread when a round begins, with the seconds of the round.
    meanwhile: Callable[[float], None] | None = None

    @property
    def name(self) -> str:
        return self.crew.kind + self.suffix


@dataclass(frozen=True, slots=True)
class Bench:
    """Servers, thoroughness, and the selection of peers for all rows of a run."""

    services: Services
    #: How often each contestant is measured.
    rounds: int = WHOLE.rounds
    #: Seconds of one contest.
    seconds: float = WHOLE.seconds
    #: Pairs of acquire and release in one round without contention.
    pairs: int = WHOLE.pairs
    #: Whether only contestants and settings with a target are measured.
    quick: bool = False
    #: The peers that are measured; None: all.
    beside: Collection[str] | None = None
    #: Whether the peers in Java are measured, too.
    java: bool = False

    def is_asked_for(self, kind: str) -> bool:
        """Return whether *kind* is measured. Our own locks always are."""
        if kind in JAVA_KINDS:
            return self.java
        return kind.startswith("distlock") or self.beside is None or kind in self.beside

    def few(self, kinds: Sequence[str], more: Sequence[str]) -> Sequence[str]:
        """Return *kinds*, with *more* unless the run is quick."""
        return kinds if self.quick else (*kinds, *more)

    def thorough(self, usual: Sequence[float], more: Sequence[float]) -> Sequence[float]:
        """Return *usual*, with *more* unless the run is quick."""
        return usual if self.quick else (*usual, *more)

    def lightly(self) -> Bench:
        """Return a bench with fewer and shorter rounds, for what has no target."""
        return replace(self, rounds=min(self.rounds, LIGHT), seconds=self.seconds / 2, pairs=self.pairs // 2)

    @contextmanager
    def crews(
        self, kinds: Sequence[str], size: int, service: str, distance: float = 0.0
    ) -> Iterator[list[Crew]]:
        """Yield a crew of *size* processes for each of *kinds* that is measured."""
        url = self.services.url(service, distance)
        with ExitStack() as stack:
            crews = []
            for kind in filter(self.is_asked_for, kinds):
                crews.append(JavaCrew(size, kind, url) if kind in JAVA_KINDS else Crew(size, kind, url))
                stack.callback(crews[-1].end)
            yield crews

    def in_turns(
        self,
        measured: Mapping[str, Callable[[], Figures]],
        warm_up: Callable[[str], object] = lambda name: None,
        lost: list[str] | None = None,
    ) -> dict[str, list[Figures]]:
        """Call all functions of *measured* once a round, in random order; return figures by name and round.

        *warm_up*: called with each name before the first round. *lost*: receives the peers that could not be
        measured, and why. A lock of ours that fails raises `BenchError`; so does a peer if *lost* is None.
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
        """Measure one thread of each crew while no other wants the lock."""

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
        contestants: Sequence[Contestant],
        service: str,
        targets: Sequence[Target] = (),
        measures: Sequence[str] = CONTEST,
    ) -> Table:
        """Measure processes that compete for one lock, and check in each round that the lock excludes."""
        violations: list[str] = []
        oracle = Oracle.make(self.services.directory)

        def measure(contestant: Contestant) -> Figures:
            oracle.clear()
            plan, meanwhile = contestant.plan, contestant.meanwhile
            numbers = range(contestant.processes or contestant.crew.size)
            start = START + START_OF_THREAD * plan.threads * len(numbers)
            before, begin = self.services.work(service), time.monotonic() + start
            tasks = [Contest(plan, oracle.path, one, begin, last=one == numbers[-1]) for one in numbers]
            with beside(partial(meanwhile, plan.seconds) if meanwhile else None):
                parts = contestant.crew.do(tasks)
            work = self.services.work(service) - before
            entered, broken = sum(len(part.waits) for part in parts), sum(part.violations for part in parts)
            if broken or oracle.entered != entered:
                violations.append(
                    f"{contestant.name}: {broken} times two were inside or a fence did not grow, and "
                    f"{entered - oracle.entered} of {entered} entries were overwritten."
                )
            if contestant.crew.kind.startswith("distlock") and not oracle.fence:
                violations.append(f"{contestant.name}: it gave no fence, so none was seen to grow.")
            figures = of_contest(parts, begin, work)
            if plan.few:
                figures |= of_few(parts)
            if plan.think:
                figures["served"] = figures["rate"] * plan.think / (plan.threads * len(parts))
            return figures

        def warm_up(name: str) -> None:
            contestant = by_name[name]
            measure(
                replace(
                    contestant, plan=replace(contestant.plan, seconds=contestant.crew.warm_up), meanwhile=None
                )
            )

        by_name, lost = {contestant.name: contestant for contestant in contestants}, list[str]()
        measured = {name: partial(measure, contestant) for name, contestant in by_name.items()}
        rounds = self.in_turns(measured, warm_up, lost)
        return Table(row, title, rounds, measures, targets, violations=violations, lost=lost)


@contextmanager
def beside(task: Callable[[], None] | None) -> Iterator[None]:
    """Run *task* in a thread during the block. Raise its exception."""
    if task is None:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task)
        yield
        running.result()
