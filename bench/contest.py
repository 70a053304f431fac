"""A contest: processes with threads that want one lock. How often each got it, and how long it waited."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.locks import Lock
from bench.oracle import Oracle, Witness

#: What all of them want.
NAME = "hot"


@dataclass(frozen=True, slots=True)
class Plan:
    """What each process does."""

    threads: int = 1
    #: All begin to stop after so many seconds.
    seconds: float = 1.0
    #: Or each takes the lock so many times.
    times: int | None = None
    #: How long the lock is held, seconds.
    body: float = 0.0
    #: How long a thread does something else before it comes again, seconds, on average.
    think: float = 0.0
    #: Threads beside, which compute without end.
    burners: int = 0
    #: The last process has so many threads instead; 0: as many as the others.
    few: int = 0


@dataclass(slots=True)
class Part:
    """What one process saw of a contest."""

    #: Seconds, of each acquisition.
    waits: array[float] = field(default_factory=lambda: array("d"))
    #: How often each thread was inside.
    entered: list[int] = field(default_factory=list)
    violations: int = 0
    changes: int = 0
    process_changes: int = 0
    #: Nanoseconds, of each change of the thread that found the next one waiting.
    hand_overs: array[float] = field(default_factory=lambda: array("d"))
    #: By the clock that all processes of a machine share.
    ended: float = 0.0
    #: Processor time of the whole process, seconds.
    cpu: float = 0.0
    #: How often a thread of it gave up its processor because it had nothing to do.
    wakes: int = 0


@dataclass(frozen=True, slots=True)
class Contest:
    """The task of one process: *number* of those in the contest, from 0. All begin at the moment *begin*."""

    plan: Plan
    oracle: Path
    number: int
    begin: float
    #: Whether it is the last one.
    last: bool = False

    def __call__(self, lock: Lock) -> Part:
        part, mutex, failures = Part(), threading.Lock(), list[BaseException]()
        cells = Oracle(self.oracle).cells

        def work(thread: int) -> None:
            witness = Witness(cells, self.number * self.plan.threads + thread + 1)
            try:
                waits = self._take_turns(lock, witness)
            except BaseException as error:
                failures.append(error)
                return
            with mutex:
                part.waits.extend(waits)
                part.entered.append(witness.entered)
                part.violations += witness.violations
                part.changes += witness.changes
                part.hand_overs.extend(witness.hand_overs)
                part.process_changes += witness.process_changes

        threads = self.plan.few if self.last and self.plan.few else self.plan.threads
        crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        with burning(self.plan.burners):
            for one in crew:
                one.start()
            # What it costs to start threads is not what is measured.
            wait_until(self.begin)
            began, idle = time.process_time(), naps()
            for one in crew:
                one.join()
        if failures:
            raise failures[0]
        part.ended, part.cpu, part.wakes = time.monotonic(), time.process_time() - began, naps() - idle
        return part

    def _take_turns(self, lock: Lock, witness: Witness) -> array[float]:
        plan, waits, until = self.plan, array("d"), self.begin + self.plan.seconds
        chance = random.Random(f"{os.getpid()} {witness.thread}")
        wait_until(self.begin)
        # At least once: a machine that is busy may need longer for it.
        while len(waits) != plan.times and (plan.times or not waits or time.monotonic() < until):
            if plan.think:
                time.sleep(chance.uniform(0.0, 2 * plan.think))
            waits.append(witness.pass_through(lock(NAME), plan.body))
        return waits


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def naps() -> int:
    """How often a thread of this process gave up its processor because it had nothing to do."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


@contextmanager
def burning(threads: int) -> Iterator[None]:
    """So many threads compute meanwhile, and want the interpreter for themselves."""
    over = threading.Event()

    def burn() -> None:
        while not over.is_set():
            sum(range(1000))

    crew = [threading.Thread(target=burn) for _ in range(threads)]
    for one in crew:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in crew:
            one.join()
