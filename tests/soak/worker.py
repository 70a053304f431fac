"""One process of a soak: threads and tasks that take locks of every kind, and note what they see.

``python -m tests.soak.worker`` reads its `Orders` as JSON from its argument, and works until its standard
input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import distlock
from tests.soak.notes import Kind, Notebook
from tests.soak.plants import PLANTS

#: Seconds within which the threads of a closed client end.
PATIENCE = 20.0
#: How many parts a latch has, and for how many seconds one is used.
PARTS, ROUND = 4, 2.0
#: How long callers wait for a lock, seconds. 0 asks once.
TIMEOUTS = (0.0, 0.1, 1.0, 8.0, 8.0, 8.0)


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
    #: Threads that count latches, and wait for them.
    latchers: int
    ttl: float
    kinds: tuple[Kind, ...]
    #: The bug that is planted before the work begins, one of `PLANTS`; "": none.
    plant: str = ""

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    """The callers of one process, with the client that they share."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.notes = Notebook(Path(orders.directory))
        self.over = threading.Event()
        self._numbers = itertools.count(1)
        self._before = descriptors()
        self.locks = distlock.connect(orders.url, prefix=orders.prefix, ttl=orders.ttl, timeout=8)

    def work(self) -> None:
        """Take locks until `over`, then close the client, and note what it leaves behind."""
        orders = self.orders
        jobs: list[Callable[[], object]] = [lambda: asyncio.run(self._tasks())]
        for job, word, count in (
            (self._caller, "thread", orders.threads),
            (self._latcher, "latcher", orders.latchers),
        ):
            jobs += [partial(job, f"{os.getpid()}/{word} {number}") for number in range(count)]
        crew = [threading.Thread(target=self._noting_errors, args=(job,)) for job in jobs]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        self.locks.close()
        self.notes.note("left", what=list(self._left()))

    def _noting_errors(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:
            self.notes.note("error", what="".join(traceback.format_exception(error)[-3:]))

    def _left(self) -> Iterable[str]:
        deadline = time.monotonic() + PATIENCE
        pause = threading.Event()
        while threads := [one.name for one in threading.enumerate() if ours(one)]:
            if time.monotonic() > deadline:
                yield f"threads: {', '.join(threads)}"
                break
            pause.wait(0.05)
        if (more := descriptors() - self._before) > 1:  # the notebook is one
            yield f"{more - 1} descriptors"

    def _caller(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        pause = threading.Event()
        while not self.over.is_set():
            attempt = _Attempt(self, caller, choices)
            if (grant := attempt.acquire()) is None:
                continue
            for seconds in attempt.steps:
                pause.wait(seconds)
                attempt.look(grant)
            attempt.release(grant)

    async def _tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.orders.tasks):
                group.create_task(self._task(f"{os.getpid()}/task {number}"))

    async def _task(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        while not self.over.is_set():
            attempt = _Attempt(self, caller, choices)
            if (grant := await attempt.aacquire()) is None:
                await asyncio.sleep(0)
                continue
            for seconds in attempt.steps:
                await asyncio.sleep(seconds)
                attempt.look(grant)
            await attempt.arelease(grant)

    def _latcher(self, caller: str) -> None:
        choices = random.Random(f"{self.orders.seed} {caller}")
        pause = threading.Event()
        while not self.over.is_set():
            self._latch(caller, choices)
            pause.wait(choices.random() * 0.1)

    def _latch(self, caller: str, choices: random.Random) -> None:
        """Count a part of the latch of these seconds, or wait for it. Several callers count each part."""
        about = {"caller": caller, "name": f"latch {int(time.monotonic() / ROUND)}", "total": PARTS}
        latch = self.locks.latch(about["name"], PARTS, ttl=60)
        try:
            latch.make()
            if choices.random() < 0.5:
                part = f"part {choices.randrange(PARTS)}"
                self.notes.note("counts", part=part, **about)
                latch.count_down(part=part)
            elif latch.wait(choices.choice((0.0, 0.2, 0.2, ROUND))):
                self.notes.note("passed", part=None, **about)
        except distlock.LatchNotFound as error:
            # It lives longer than anybody uses it.
            self.notes.note("error", what=f"LatchNotFound: {error}")
        except distlock.BackendUnavailable:
            pass  # The faults make the lock service unavailable.

    def number(self) -> int:
        return next(self._numbers)


class _Attempt:
    """One attempt of one caller: what it takes, and the notes about it."""

    def __init__(self, worker: Worker, caller: str, choices: random.Random) -> None:
        self._notes, self._locks = worker.notes, worker.locks
        self.kind: Kind = choices.choice(worker.orders.kinds)
        name = f"n{choices.randrange(worker.orders.names)}"
        self._timeout = choices.choice(TIMEOUTS)
        self.steps = [choices.random() * 0.01 for _ in range(choices.randrange(3))]
        limit = choices.choice((2, 2, 3)) if self.kind == "permit" else 0
        permits = choices.randint(1, 2) if self.kind == "permit" else 1
        self._id = f"{worker.number()}"
        self._about = {
            "id": self._id,
            "caller": caller,
            "name": name,
            "kind": self.kind,
            "permits": permits,
            "limit": limit,
        }
        make: dict[str, Callable[[], Any]] = {
            "lock": lambda: self._locks.lock(name),
            "rlock": lambda: self._locks.rlock(name),
            "read": lambda: self._locks.read_lock(name),
            "write": lambda: self._locks.write_lock(name),
            "permit": lambda: self._locks.semaphore(name, limit=limit, permits=permits),
        }
        self._lock = make[self.kind]()

    def acquire(self) -> distlock.Grant | None:
        self._notes.note("asked", **self._about)
        try:
            grant = self._lock.acquire(timeout=self._timeout)
        except distlock.LockError as error:
            return self._refused(error)
        return self._answered(grant)

    async def aacquire(self) -> distlock.Grant | None:
        self._notes.note("asked", **self._about)
        try:
            grant = await self._lock.aacquire(timeout=self._timeout)
        except distlock.LockError as error:
            return self._refused(error)
        return self._answered(grant)

    def _refused(self, error: distlock.LockError) -> None:
        self._notes.note("refused", id=self._id, how=type(error).__name__)
        if not isinstance(error, distlock.BackendUnavailable):
            self._notes.note("error", what=f"{type(error).__name__}: {error}")

    def _answered(self, grant: distlock.Grant | None) -> distlock.Grant | None:
        if grant is None:
            self._notes.note("refused", id=self._id, how="timeout")
            return None
        now, lost = time.monotonic(), grant.lost
        fence = None if self.kind == "permit" else grant.fence
        self._notes.note_at(now, "granted", id=self._id, fence=fence, lost=lost)
        return grant

    def look(self, grant: distlock.Grant) -> None:
        now = time.monotonic()
        if not grant.lost:
            self._notes.note_at(now, "sure", id=self._id)

    def release(self, grant: distlock.Grant) -> None:
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "releasing", id=self._id, lost=lost)
        grant.release()
        self._notes.note("released", id=self._id)

    async def arelease(self, grant: distlock.Grant) -> None:
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "releasing", id=self._id, lost=lost)
        await grant.arelease()
        self._notes.note("released", id=self._id)


def ours(thread: threading.Thread) -> bool:
    """Return whether distlock has started *thread*, and should have ended it with its client."""
    return thread.name.startswith("distlock") and not thread.name.startswith("distlock-io")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main() -> None:
    logging.disable(logging.CRITICAL)
    orders = json.loads(sys.argv[1])
    if orders["plant"]:
        PLANTS[orders["plant"]]()
    worker = Worker(Orders(**{**orders, "kinds": tuple(orders["kinds"])}))

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        worker.over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    worker.work()


if __name__ == "__main__":
    main()
