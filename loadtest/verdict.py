"""The verdict: what a run showed, judged only by its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from loadtest.scenario import Outcome

#: If the lock refuses a larger share of the requests, the run proves nothing about sales.
REFUSALS_ALLOWED = 0.05
#: A shop that must oversell has to sell at least this many times its stock, so that the effect is clear.
CLEAR_MARGIN = 1.25
SOLD, SOLD_OUT = 200, 409


@dataclass(frozen=True, slots=True)
class Shelf:
    """A product's units before and after the sale, and the units in orders."""

    initial: int
    final: int
    sold: int


@dataclass(frozen=True, slots=True)
class Stall:
    """What happened to the purchase whose process was stopped."""

    #: For how many seconds the process was stopped.
    seconds: float
    #: For how many seconds its lock lives without renewal.
    ttl: float
    #: Whether another instance was granted the lock meanwhile.
    passed_on: bool
    #: How many units others sold meanwhile.
    sold_meanwhile: int
    #: The status of the answer to the purchase's buyer; 0: there was no answer.
    status: int
    #: The code in that answer, if it has one.
    code: str | None
    #: How many other orders there are for the unit that the purchase sold.
    resold: int

    @property
    def refused(self) -> bool:
        """Whether the purchase was rolled back, and its buyer told so."""
        return (self.status, self.code) == (503, "lock_lost")


@dataclass(frozen=True, slots=True)
class Absence:
    """The time in which a lock service that was struck granted nothing."""

    #: The longest such time; None: no purchase was granted the lock again, or the service was never struck.
    seconds: float | None
    #: How many seconds are allowed.
    expected: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of one run."""

    #: The shelves by product, because missing sales of one do not make up for too many of another.
    shelves: Mapping[int, Shelf]
    #: How many requests should have been sent: users x purchases.
    requests: int
    #: The number of answers by HTTP status; 0: no answer.
    answers: Mapping[int, int]
    #: How many answers have a code by which the guard refuses.
    refused: int
    #: How many orders were confirmed to a buyer but are not in the database.
    lost_orders: int
    #: The number of orders by the instance that wrote them.
    sold_by: Mapping[str, int]
    #: The number of answers by the instance that gave them.
    served_by: Mapping[str, int]
    #: The instances behind nginx.
    instances: tuple[str, ...]
    #: How many orders in the database were confirmed to no buyer.
    untold_orders: int = 0
    #: Whether all buyers had finished in time.
    ended: bool = True
    #: How many purchases released the lock before their COMMIT had ended; None: it was not measured.
    early_releases: int | None = None
    #: Whether a purchase was to be stopped until the lock has passed on.
    stops: bool = False
    #: What happened to that purchase; None: none was stopped.
    stall: Stall | None = None
    #: How long the lock service granted nothing; None: it was not to be struck.
    absence: Absence | None = None

    @property
    def initial(self) -> int:
        return sum(shelf.initial for shelf in self.shelves.values())

    @property
    def final(self) -> int:
        return sum(shelf.final for shelf in self.shelves.values())

    @property
    def sold(self) -> int:
        return sum(shelf.sold for shelf in self.shelves.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a run, and the reasons."""

    outcome: Outcome
    #: Sentences that prove that units were sold twice.
    evidence: tuple[str, ...] = ()
    #: Sentences about what was wrong with the run itself.
    doubts: tuple[str, ...] = ()


class Conclusion(StrEnum):
    """Whether a scenario showed what it must."""

    SHOWN = "shown"
    WRONG = "wrong"
    INCONCLUSIVE = "inconclusive"


def judge(run: Figures) -> Verdict:
    """Judge a run. Evidence of overselling counts even if something else went wrong in the run."""
    evidence, doubts = tuple(evidence_of(run)), tuple(doubts_of(run))
    if evidence:
        return Verdict(Outcome.OVERSOLD, evidence, doubts + tuple(doubts_of_cause(run)))
    if run.sold < run.initial:
        doubts += (f"Only {run.sold} of {run.initial} units were sold.",)
    doubts += tuple(doubts_of_guard(run))
    return Verdict(Outcome.INCONCLUSIVE if doubts else Outcome.EXACT, (), doubts)


def conclude(must_be: Outcome, run: Figures, verdict: Verdict, control: Conclusion | None) -> Conclusion:
    """Return whether the run showed what it must. *control*: the conclusion of the run without the guard."""
    if must_be is Outcome.EXACT and verdict.outcome is Outcome.OVERSOLD:
        return Conclusion.WRONG
    may_be = {Outcome.OVERSOLD, Outcome.EXACT} if must_be is Outcome.EITHER else {must_be}
    if verdict.outcome not in may_be or verdict.doubts:
        return Conclusion.INCONCLUSIVE
    # If a purchase was stopped, the other orders for its unit are the evidence: see `doubts_of_cause`.
    if must_be is Outcome.OVERSOLD and not run.stops and run.sold < run.initial * CLEAR_MARGIN:
        return Conclusion.INCONCLUSIVE
    # A lock proves nothing if the same run without it did not oversell.
    if control not in (None, Conclusion.SHOWN):
        return Conclusion.INCONCLUSIVE
    return Conclusion.SHOWN


def evidence_of(run: Figures) -> Iterator[str]:
    for which, shelf in named(run.shelves):
        taken = shelf.initial - shelf.final
        if shelf.sold > shelf.initial:
            yield f"{which}{shelf.sold} units were sold, and there were only {shelf.initial}."
        if shelf.final < 0:
            yield f"{which}The stock fell to {shelf.final}."
        if shelf.sold > taken:
            yield f"{which}{shelf.sold} sales took only {taken} units off the shelf: some were sold twice."


def doubts_of(run: Figures) -> Iterator[str]:
    answered = sum(run.answers.values())
    if not run.ended:
        yield "The sale did not end in time."
    if answered != run.requests:
        yield f"{run.requests} requests were due, and {answered} were made."
    # If there are fewer units than instances, not each instance can sell one.
    part, what = (run.sold_by, "sold") if run.initial >= len(run.instances) else (run.served_by, "answered")
    for instance in run.instances:
        if not part.get(instance):
            yield f"The instance {instance} {what} nothing, so it took no part."
    for instance in sorted(run.sold_by.keys() - set(run.instances)):
        yield f"An unknown instance, {instance}, sold something."
    # While the lock service is away, refusals are right.
    if not run.absence and run.refused > run.requests * REFUSALS_ALLOWED:
        yield (
            f"The lock refused {run.refused} of {run.requests} requests; "
            f"a run counts up to {REFUSALS_ALLOWED:.0%}."
        )
    failed = answered - run.answers.get(SOLD, 0) - run.answers.get(SOLD_OUT, 0) - run.refused
    if failed > 0:
        yield f"Failed requests: {failed}."
    if run.lost_orders:
        yield f"{run.lost_orders} orders were confirmed to their buyers and are not in the database."
    if run.untold_orders:
        yield f"{run.untold_orders} orders are in the database, and their buyers were not told of them."
    if run.stops:
        yield from doubts_of_stall(run.stall)
    if run.absence:
        yield from doubts_of_absence(run.absence)
    for which, shelf in named(run.shelves):
        taken = shelf.initial - shelf.final
        if shelf.sold < taken:
            yield f"{which}{taken} units left the shelf for only {shelf.sold} sales."


def doubts_of_stall(stall: Stall | None) -> Iterator[str]:
    """Yield doubts whether a holder was stopped until another one got the lock."""
    if stall is None:
        yield "No purchase was stopped."
        return
    if not stall.passed_on:
        yield "The lock was not passed on while its holder was stopped."
    if not stall.status:
        yield "The purchase that was stopped got no answer."


def doubts_of_absence(absence: Absence) -> Iterator[str]:
    """Yield doubts whether the lock service was back as soon as its settings promise."""
    if absence.seconds is None:
        yield "Nobody was granted the lock after the outage."
    elif absence.seconds > absence.expected:
        yield f"Nobody was granted the lock for {absence.seconds:.1f} s: expected are {absence.expected:g} s."


def doubts_of_cause(run: Figures) -> Iterator[str]:
    """Yield doubts whether the run oversold for another reason than the one that it is about."""
    if run.early_releases == 0:
        yield "No purchase released the lock before its COMMIT: something else was sold twice."
    if run.stall and not run.stall.resold:
        yield "The unit of the stopped purchase was sold to nobody else: something else was sold twice."


def doubts_of_guard(run: Figures) -> Iterator[str]:
    """Yield doubts whether the guard made the run exact."""
    if run.early_releases:
        yield f"{run.early_releases} purchases released the lock before their COMMIT was done."
    # After an outage, the stopped purchase may pass the fence if it comes there first.
    if run.stall and run.stall.status and not run.stall.refused and not run.absence:
        yield f"The stopped purchase was answered {run.stall.status}, and not 503 lock_lost."


def named(shelves: Mapping[int, Shelf]) -> Iterator[tuple[str, Shelf]]:
    """Yield each shelf, with the beginning of a sentence about it."""
    for product, shelf in shelves.items():
        yield (f"Product {product}: " if len(shelves) > 1 else ""), shelf
