"""Tasks for a process of a crew: a contest for one lock, with checks that it excludes, or pairs alone."""

from __future__ import annotations

import mmap
import os
import random
import resource
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.locks import Lock

#: The name of the lock in a contest.
NAME = "hot"
#: Indices of the oracle's cells: the thread that is inside, the number of entries, the last fence number, the
#: last thread and process, and when it left, in nanoseconds.
INSIDE, ENTERED, FENCE, THREAD, PROCESS, LEFT = range(6)
SIZE = 6 * 8


@dataclass(frozen=True, slots=True)
class ContestPlan:
    """The plan of a contest, for each of its processes."""

    threads: int = 1
    #: Seconds after which no thread takes the lock again.
    seconds: float = 1.0
    #: How often each thread takes the lock; None: until the time is over.
    times: int | None = None
    #: Seconds that the lock is held.
    body: float = 0.0
    #: The mean pause of a thread between two acquisitions, seconds.
    think: float = 0.0
    #: Additional threads that compute without end.
    burners: int = 0
    #: Threads of the last process; 0: as many as in the other processes.
    few: int = 0


@dataclass(slots=True)
class Part:
    """The results of one process in a contest."""

    #: Seconds of each wait.
    waits: array[float] = field(default_factory=lambda: array("d"))
    #: How often each thread was inside.
    entered: list[int] = field(default_factory=list)
    violations: int = 0
    changes: int = 0
    process_changes: int = 0
    #: Nanoseconds of each hand-off to a thread that waited already.
    hand_overs: array[float] = field(default_factory=lambda: array("d"))
    #: When it ended, on ``time.monotonic``, which all processes of a machine share.
    ended: float = 0.0
    #: Processor time of the whole process, seconds.
    cpu: float = 0.0
    #: Voluntary context switches: how often a thread went to sleep.
    wakes: int = 0


@dataclass(frozen=True, slots=True)
class Contest:
    """The task of process *number*, from 0. All processes begin at the moment *begin*."""

    plan: ContestPlan
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
            # The start of threads is not measured.
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
        # Each thread takes the lock at least once, even if a busy machine needs all the time for that.
        while len(waits) != plan.times and (plan.times or not waits or time.monotonic() < until):
            if plan.think:
                time.sleep(chance.uniform(0.0, 2 * plan.think))
            waits.append(witness.pass_through(lock(NAME), plan.body))
        return waits


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def naps() -> int:
    """Return the voluntary context switches of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


@contextmanager
def burning(threads: int) -> Iterator[None]:
    """Run *threads* during the block that compute without end, and so compete for the interpreter."""
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


class Oracle:
    """Memory that all processes of a contest share, and touch only under the lock.

    *path*: a file that all processes can open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)
        self.cells = memoryview(self._memory).cast("q")

    @classmethod
    def make(cls, directory: Path) -> Oracle:
        path = directory / "oracle"
        path.write_bytes(bytes(SIZE))
        return cls(path)

    def clear(self) -> None:
        for cell in range(len(self.cells)):
            self.cells[cell] = 0

    @property
    def entered(self) -> int:
        """The number of entries. It is less than the threads' counts together if two were inside at once."""
        return self.cells[ENTERED]

    @property
    def fence(self) -> int:
        """The fence number of the last entry; 0: none had one."""
        return self.cells[FENCE]


@dataclass(slots=True)
class Witness:
    """The observations of one thread inside the lock. *thread*: its number in the contest, from 1."""

    cells: memoryview[int]
    thread: int
    entered: int = 0
    #: How often another thread was inside, too, or the fence did not grow.
    violations: int = 0
    #: How often another thread, and how often another process, was the previous one inside.
    changes: int = 0
    process_changes: int = 0
    #: Nanoseconds from when another thread left until this one, which waited already, was inside.
    hand_overs: array[float] = field(default_factory=lambda: array("d"))

    def pass_through(self, lock: AbstractContextManager[Any], body: float) -> float:
        """Take *lock* for *body* seconds. Return the seconds of the wait."""
        cells, me, process = self.cells, self.thread, os.getpid()
        asked = time.monotonic_ns()
        with lock as got:
            now = time.monotonic_ns()
            if cells[INSIDE]:
                self.violations += 1
            cells[INSIDE] = me
            entered = cells[ENTERED]
            if (fence := getattr(got, "fence", None)) is not None:
                if fence.number <= cells[FENCE]:
                    self.violations += 1
                cells[FENCE] = fence.number
            if entered and cells[THREAD] != me:
                self.changes += 1
                self.process_changes += cells[PROCESS] != process
                if asked < cells[LEFT] < now:
                    self.hand_overs.append(now - cells[LEFT])
            cells[THREAD], cells[PROCESS] = me, process
            if body:
                time.sleep(body)
            if cells[INSIDE] != me:
                self.violations += 1
            cells[ENTERED] = entered + 1
            cells[INSIDE], cells[LEFT] = 0, time.monotonic_ns()
        self.entered += 1
        return (now - asked) / 1e9


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of one pair of acquire and release."""

    seconds: float
    #: Processor time of the whole process, seconds.
    cpu: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """The task of one process: pairs of acquire and release while no other process wants the lock."""

    pairs: int

    def __call__(self, lock: Lock) -> Spent:
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.pairs):
            with lock("alone"):
                pass
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Spent(seconds / self.pairs, cpu / self.pairs)
