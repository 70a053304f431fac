"""A run of the soak: it starts the workers, draws the faults, and has the notes judged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tests.soak import faults, process_faults
from tests.soak.judge import excused_share, judge
from tests.soak.leftovers import find_leftovers
from tests.soak.notes import Fault, History, Kind, read
from tests.soak.promises import Promises, Violation
from tests.soak.services.service import TTL, Service
from tests.soak.worker import Orders, second_service

#: How long a lock may be free while somebody waits for it, seconds. On a busy machine it takes longer.
PATIENCE = 2.5
#: Seconds within which a worker ends that is told to.
WORKER_ENDS = 60.0
#: For how many seconds the last worker runs alone; and how many seconds beyond two leases a lock may remain.
LAST_WORKER, LEFTOVERS = 2.0, 10.0
#: For how many seconds faults are drawn, and then not. `__main__` adds the patience to the second.
STORM, CALM = 15.0, 10.0
#: The kinds of locks of each lock service, by the scheme of its URL.
ANYWHERE: tuple[Kind, ...] = ("lock", "rlock", "cart", "multi", "second")
ALL: tuple[Kind, ...] = (*ANYWHERE, "push", "read", "write", "permit", "asked")
WITHOUT_LATCHES = frozenset({"postgresql", "mysql", "redlock"})
KINDS: dict[str, tuple[Kind, ...]] = {
    "postgresql": ANYWHERE,
    "mysql": ANYWHERE,
    "redlock": (*ANYWHERE, "asked"),
}


#: The names of the faults that strike workers.
FAULTS_OF_WORKERS = (*faults.OF_WORKERS, *process_faults.FAULTS)


def fault_names(service: Service) -> list[str]:
    """Return the names of all faults that can strike *service* or its workers."""
    strikes = [one.what for one in service.strikes + service.losing]
    return [*FAULTS_OF_WORKERS, *strikes]


@dataclass
class Soak:
    """The workers on one lock service, and what was done to them.

    *pause*: the mean time between two faults, seconds. *patience*: how long a lock may be free while somebody
    waits, seconds. *storm*: for how many seconds faults are drawn; *calm*: and then not. *forgets*:
    whether the lock service may lose its data. *only*: the faults to draw; empty: all.
    *plant*: a bug to plant in each worker, one of `PLANTS`; "": none.
    """

    service: Service
    directory: Path
    seed: int
    workers: int = 3
    threads: int = 3
    tasks: int = 4
    crowd: int = 2
    names: int = 3
    pause: float = 0.7
    storm: float = STORM
    calm: float = CALM
    forgets: bool = False
    only: frozenset[str] = frozenset()
    patience: float = PATIENCE
    plant: str = ""
    faults: list[Fault] = field(default_factory=list, init=False)
    #: The moment at which the run began.
    began: float = field(default=0.0, init=False)
    #: For how many seconds callers waited, and for how many of them a fault would have excused it.
    waited: float = field(default=0.0, init=False)
    excused: float = field(default=0.0, init=False)
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)
    _started: int = field(default=0, init=False)
    #: Workers that ended by themselves, or did not end when they were told to.
    _errors: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        service = self.service
        strikes = service.strikes + (service.losing if self.forgets else ())
        self._strikes = {one.what: one for one in strikes if self._draws(one.what)}
        self._choices = random.Random(self.seed)
        self._of_service = faults.Deck(tuple(self._strikes), self._choices)
        self._of_workers = faults.Deck(tuple(filter(self._draws, faults.OF_WORKERS)), self._choices)

    @property
    def _promises(self) -> Promises:
        service = self.service
        return Promises(
            self.patience,
            service.killed,
            service.stopped,
            # A busy machine feels a fault for longer.
            slack=max(0.0, self.patience - PATIENCE),
            in_files=service.scheme == "file",
            tasks_share=service.scheme.startswith("redis"),
            in_turns=service.scheme != "redlock",
        )

    @property
    def _schedule(self) -> faults.Schedule:
        return faults.Schedule(self.began, self.storm, self.calm)

    def _draws(self, what: str) -> bool:
        return not self.only or what in self.only

    def run(self, seconds: float) -> tuple[History, list[Violation]]:
        """Soak for *seconds*, and return what was noted, and what was wrong in it."""
        self.began = time.monotonic()
        try:
            for _ in range(self.workers):
                self._start()
            for one in self._running:
                self._wait_for(one)
            self._strike_until(time.monotonic() + seconds)
        finally:
            self._end()
        self._tidy_up()
        history = self._history()
        for url in (self.service.direct or self.service.url, second_service(self.directory)):
            history.leftovers += find_leftovers(url, TTL, LEFTOVERS)
        self.waited, self.excused = excused_share(history, self._promises)
        return history, judge(history, self._promises)

    def _history(self) -> History:
        history = read(self.directory, self.faults, until=time.monotonic())
        history.errors += self._errors
        return history

    def _is_broken(self) -> bool:
        """Return whether a promise was broken until now. Then the run need not go on."""
        return any(not one.admitted for one in judge(self._history(), self._promises))

    def _tidy_up(self) -> None:
        """Let a last worker, which no fault strikes, meet what the others have left behind."""
        self._running.clear()
        try:
            self._start(struck=False)
            self._wait_for(self._running[0])
            threading.Event().wait(LAST_WORKER)
        finally:
            self._end()

    def _strike_until(self, end: float) -> None:
        choices, never = self._choices, threading.Event()
        while (now := time.monotonic()) < end:
            never.wait(min(choices.expovariate(1 / self.pause), end - now))
            now = time.monotonic()
            if now >= end:
                break
            if calm := self._schedule.calm_left(now):
                never.wait(min(calm, end - now))
                if now + calm < end and self._is_broken():
                    return
            elif self._strikes and (not self._of_workers or choices.random() < 0.7):
                self.faults.append(faults.strike(self._strikes[self._of_service.draw()], choices))
            elif self._of_workers:
                self.faults += self._strike_worker(choices)

    def _strike_worker(self, choices: random.Random) -> list[Fault]:
        working = [one for one in self._running if self._works(one)]
        if not working:
            return []
        what, victim = self._of_workers.draw(), choices.choice(working)
        if what != "SIGKILL":
            return [faults.stop(victim.pid, choices.choice(faults.STOPS[what]))]
        killed = faults.kill(victim.pid)
        if victim.wait() != -signal.SIGKILL:
            self._errors.append(f"process {victim.pid} had ended with {victim.returncode}")
        _close(victim)
        self._running.remove(victim)
        self._start()
        return killed

    def _start(self, struck: bool = True) -> None:
        """Start a worker. *struck*: whether faults strike inside it."""
        self._started += 1
        scheme = self.service.scheme
        orders = Orders(
            url=self.service.url,
            prefix="soak",
            seed=self.seed * 1000 + self._started,
            directory=str(self.directory),
            names=self.names,
            threads=self.threads,
            tasks=self.tasks,
            crowd=self.crowd,
            latchers=0 if scheme in WITHOUT_LATCHES else 2,
            ttl=TTL,
            patience=self.patience,
            kinds=KINDS.get(scheme, ALL),
            plant=self.plant,
            faults=tuple(filter(self._draws, process_faults.FAULTS)) if struck else (),
            schedule=astuple(self._schedule),
        )
        command = [sys.executable, "-m", "tests.soak.worker", orders.as_argument()]
        self._running.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def _works(self, worker: subprocess.Popen[bytes]) -> bool:
        """Return whether *worker* has noted anything yet. On a busy machine it takes seconds to start."""
        notes = self.directory / f"{worker.pid}.notes"
        return notes.exists() and notes.stat().st_size > 0

    def _wait_for(self, worker: subprocess.Popen[bytes]) -> None:
        deadline, pause = time.monotonic() + WORKER_ENDS, threading.Event()
        while not self._works(worker) and worker.poll() is None and time.monotonic() < deadline:
            pause.wait(0.05)

    def _end(self) -> None:
        for one in self._running:
            _close(one)
        for one in self._running:
            try:
                one.wait(WORKER_ENDS)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
                self._errors.append(f"process {one.pid} did not end within {WORKER_ENDS:g} s")
            else:
                if one.returncode:
                    self._errors.append(f"process {one.pid} ended with {one.returncode}")


def _close(worker: subprocess.Popen[bytes]) -> None:
    """Close the standard input of *worker*, which tells it to end."""
    assert worker.stdin is not None
    worker.stdin.close()
