"""One process of a soak: threads and tasks that take locks of every kind, and note what they see.

``python -m tests.soak.worker`` reads its `Orders` as JSON from its argument, and works until its standard
input ends.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import distlock
from tests.soak import process_faults
from tests.soak.attempts import AskedAttempt, Attempt, adrive, drive, request_release
from tests.soak.faults import CLOSING, Schedule
from tests.soak.latching import latch_steps
from tests.soak.notes import BEGINS, Kind, Notebook
from tests.soak.plants import PLANTS

#: For how many seconds a process begins, while all its callers make their first calls. Then it looks how late
#: a thread is that waits for so many seconds.
BEGINNING, BEAT, LATE = 4.0, 0.1, 0.6
#: Seconds within which the threads of a closed client end, and of one that was dropped: they linger.
#: That many descriptors are not those of a client that lingers, and are told sooner.
LINGER, MANY = 20.0, 50
#: How many descriptors the signals of one fault may lose: each may come when a file was opened, but its
#: descriptor is not assigned yet. Python offers nothing against that.
LOST = 2
#: How many descriptors that are left are shown.
SHOWN = 8
#: The mean time between two requests of a process to release a lock, seconds.
REQUESTS = 1.5


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker has to do."""

    url: str
    prefix: str
    seed: int
    directory: str
    names: int
    threads: int
    tasks: int
    #: How many threads want one name that nobody else wants, and how many tasks.
    crowd: int
    #: How many threads use latches, and how many tasks.
    latchers: int
    ttl: float
    #: How long a lock may be free while callers wait, seconds. On a busy machine it takes longer.
    patience: float
    kinds: tuple[Kind, ...]
    #: The bug that is planted before the work begins, one of `PLANTS`; "": none.
    plant: str = ""
    #: What strikes inside the process, of `process_faults.FAULTS`, and when: the fields of `Schedule`.
    faults: tuple[str, ...] = ()
    schedule: tuple[float, float, float] = (0.0, 1.0, 0.0)

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    """The callers of one process, with the clients that they share.

    *second*: the client of a second lock service, some of whose locks are taken together with those of the
    first one.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.notes = Notebook(Path(orders.directory))
        #: Set when the callers have to end: for a while, or for good.
        self.over, self._ends = threading.Event(), threading.Event()
        self._schedule = Schedule(*orders.schedule)
        #: How often a fault has interrupted callers of this process.
        self.interrupts = 0
        self._numbers = itertools.count(1)
        self._before = descriptors()
        self.locks = distlock.connect(orders.url, prefix=orders.prefix, ttl=orders.ttl, timeout=8)
        self.second = distlock.connect(second_service(Path(orders.directory)), ttl=orders.ttl, timeout=8)

    def end(self) -> None:
        self._ends.set()
        self.over.set()

    def work(self) -> None:
        """Take locks until `end` is called. Early in each calm, close the clients and go on."""
        for watch in (self._watch_time, self._watch_schedule):
            threading.Thread(target=watch, daemon=True).start()
        while not self._ends.is_set():
            self._work_until_over()
            self.locks.close()
            self.second.close()
            closed = time.monotonic()
            self.notes.note_at(closed, "left", what=list(self._left()))
            self.over.clear()

    def _work_until_over(self) -> None:
        orders = self.orders
        jobs: list[Callable[[], object]] = [lambda: asyncio.run(self._tasks())]
        asked = 1 if "asked" in orders.kinds else 0
        for job, word, count in (
            (self._caller, "thread", orders.threads),
            (self._caller, "crowd", orders.crowd),
            (self._latcher, "latcher", orders.latchers),
            (self._holder, "holder", asked),
            (self._requester, "requester", asked),
        ):
            jobs += [partial(job, f"{os.getpid()}/{word} {number}") for number in range(count)]
        crew = [threading.Thread(target=self._noting_errors, args=(job,)) for job in jobs]
        for thread in crew:
            thread.start()
        process_faults.strike(self)
        for thread in crew:
            thread.join()

    def _watch_time(self) -> None:
        """Note when this process gets no time, because it begins or the machine is busy: calls may fail."""
        with self._struck(BEGINS):
            self._ends.wait(BEGINNING)
        last = time.monotonic()
        while not self._ends.wait(BEAT):
            if (now := time.monotonic()) - last > LATE:
                self.notes.note_at(last, "struck", what="no time", forgets=False)
                self.notes.note_at(now, "recovered", what="no time", more=0.0)
            last = now

    def _watch_schedule(self) -> None:
        while not self._ends.wait(min(self._schedule.until_closing(time.monotonic()), threading.TIMEOUT_MAX)):
            self.over.set()
            self._ends.wait(CLOSING / 2)

    @contextmanager
    def _struck(self, what: str) -> Iterator[None]:
        self.notes.note("struck", what=what, forgets=False)
        yield
        self.notes.note("recovered", what=what, more=0.0)

    def _noting_errors(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:
            self.notes.note("error", what="".join(traceback.format_exception(error)[-3:]))

    def _left(self) -> Iterable[str]:
        closed, pause = time.monotonic(), threading.Event()
        while True:
            # What refers to a client that was dropped goes in circles.
            gc.collect()
            threads = [one.name for one in threading.enumerate() if ours(one)]
            more = descriptors() - self._before - 1 - LOST * self.interrupts
            if not threads and more <= 0:
                return
            if time.monotonic() > closed + (2 * self.orders.patience if more > MANY else LINGER):
                break
            pause.wait(0.2)
        if threads:
            yield f"threads: {', '.join(threads)}"
        if more > 0:
            yield f"{more} descriptors, the latest of {', '.join(map(shown, list_descriptors()[-SHOWN:]))}"

    def _caller(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        while not self.over.is_set():
            drive(Attempt(self, caller, choices, self._draw_kind(caller, choices)).steps())

    def _draw_kind(self, caller: str, choices: random.Random) -> Kind:
        if caller.partition("/")[2].startswith("crowd"):
            return "crowd"
        return choices.choice([kind for kind in self.orders.kinds if kind != "asked"])

    def _holder(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        while not self.over.is_set():
            drive(AskedAttempt(self, caller, choices).steps())

    def _requester(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        while not self.over.wait(choices.expovariate(1 / REQUESTS)):
            request_release(self, caller)

    def _latcher(self, caller: str) -> None:
        drive(latch_steps(self, caller, random.Random(f"{self.orders.seed} {caller}")))

    async def _tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.orders.tasks):
                group.create_task(self._task(f"{os.getpid()}/task {number}"))
            for number in range(self.orders.crowd):
                group.create_task(self._task(f"{os.getpid()}/crowding task {number}"))
            for number in range(self.orders.latchers):
                caller = f"{os.getpid()}/latching task {number}"
                choices = random.Random(f"{self.orders.seed} {caller}")
                group.create_task(adrive(latch_steps(self, caller, choices)))

    async def _task(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        while not self.over.is_set():
            await adrive(Attempt(self, caller, choices, self._draw_kind(caller, choices)).steps())
            await asyncio.sleep(0)

    def number(self) -> int:
        return next(self._numbers)


def second_service(notes: Path) -> str:
    """Return the URL of the second lock service of the workers that note in *notes*."""
    directory = notes.with_name("second")
    directory.mkdir(exist_ok=True)
    return directory.as_uri()


def ours(thread: threading.Thread) -> bool:
    """Return whether distlock has started *thread*, and should have ended it with its client."""
    return thread.name.startswith("distlock") and not thread.name.startswith("distlock-io")


def list_descriptors() -> list[int]:
    return [int(number) for number in os.listdir("/proc/self/fd")]


def descriptors() -> int:
    return len(list_descriptors())


def shown(descriptor: int) -> str:
    """Return what *descriptor* is, and which ports a connection has."""
    what = ""
    with suppress(OSError):
        what = os.readlink(f"/proc/self/fd/{descriptor}")
        if what.startswith("socket:"):
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                what += f" {connection.getsockname()} {connection.getpeername()}"
    return what


def main() -> None:
    logging.disable(logging.CRITICAL)
    orders = json.loads(sys.argv[1])
    if orders["plant"]:
        PLANTS[orders["plant"]]()
    # JSON has lists only.
    worker = Worker(
        Orders(**{word: tuple(one) if isinstance(one, list) else one for word, one in orders.items()})
    )

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        worker.end()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    worker.work()


if __name__ == "__main__":
    main()
