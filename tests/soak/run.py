"""A run of the soak: it starts the workers, draws the faults, and has the notes judged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import faults
from tests.soak.judge import Violation, judge
from tests.soak.leftovers import find_leftovers
from tests.soak.notes import Fault, History, Kind, read
from tests.soak.proxy import Proxy
from tests.soak.worker import Orders, second_service

#: The lease of the locks, seconds.
TTL = 3.0
#: How long a lock may be free while somebody waits for it, seconds. On a busy machine it takes longer.
PATIENCE = 2.5
#: Seconds within which a worker ends that is told to.
END = 60.0
#: For how many seconds the last worker is alone, and how many more seconds than its lease a lock may remain.
LAST, LEFTOVERS = 2.0, 10.0
#: The kinds of locks of each lock service, by the scheme of its URL.
ANYWHERE: tuple[Kind, ...] = ("lock", "rlock", "cart", "multi", "second")
ALL: tuple[Kind, ...] = (*ANYWHERE, "push", "read", "write", "permit", "asked")
WITHOUT_LATCHES = frozenset({"postgresql", "mysql", "redlock"})
KINDS: dict[str, tuple[Kind, ...]] = {
    "postgresql": ANYWHERE,
    "mysql": ANYWHERE,
    "redlock": (*ANYWHERE, "asked"),
}


@dataclass
class Soak:
    """The workers on one lock service, and what was done to them.

    *pause*: the mean time between two faults, seconds. *patience*: how long a lock may be free while somebody
    waits, seconds. *forgets*: whether the lock service may lose its data.
    *plant*: a bug to plant in each worker, one of `PLANTS`; "": none.
    """

    url: str
    directory: Path
    seed: int
    workers: int = 3
    threads: int = 4
    tasks: int = 6
    names: int = 3
    pause: float = 1.0
    forgets: bool = False
    patience: float = PATIENCE
    plant: str = ""
    #: The proxy that the workers connect to; None: they connect to the lock service.
    proxy: Proxy | None = None
    faults: list[Fault] = field(default_factory=list, init=False)
    #: The moment at which the run began.
    began: float = field(default=0.0, init=False)
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)
    _started: int = field(default=0, init=False)
    #: Workers that ended by themselves, or did not end when they were told to.
    _errors: list[str] = field(default_factory=list, init=False)

    def run(self, seconds: float) -> tuple[History, list[Violation]]:
        """Soak for *seconds*, and return what was noted, and what was wrong in it."""
        choices, never = random.Random(self.seed), threading.Event()
        self.began = time.monotonic()
        end = self.began + seconds
        try:
            for _ in range(self.workers):
                self._start()
            while (now := time.monotonic()) < end:
                never.wait(min(choices.expovariate(1 / self.pause), end - now))
                if time.monotonic() < end:
                    self.faults.append(self._strike(choices))
        finally:
            self._end()
        self._tidy_up()
        history = read(self.directory, self.faults)
        history.errors += self._errors
        for url in (self.url, second_service(self.directory)):
            history.leftovers += find_leftovers(url, TTL, LEFTOVERS)
        return history, judge(history, TTL, self.patience)

    def _tidy_up(self) -> None:
        """Let a last worker, which no fault strikes, meet what the others have left behind."""
        self._running.clear()
        try:
            self._start()
            threading.Event().wait(LAST)
        finally:
            self._end()

    def _start(self) -> None:
        self._started += 1
        scheme = self.url.partition(":")[0]
        orders = Orders(
            url=self.url if self.proxy is None else self.proxy.url,
            prefix="soak",
            seed=self.seed * 1000 + self._started,
            directory=str(self.directory),
            names=self.names,
            threads=self.threads,
            tasks=self.tasks,
            latchers=0 if scheme in WITHOUT_LATCHES else 2,
            ttl=TTL,
            kinds=KINDS.get(scheme, ALL),
            plant=self.plant,
        )
        command = [sys.executable, "-m", "tests.soak.worker", orders.as_argument()]
        self._running.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def _strike(self, choices: random.Random) -> Fault:
        scheme = self.url.partition(":")[0]
        strikes = dict(faults.STRIKES.get(scheme, {}))
        if (proxy := self.proxy) is not None:
            strikes |= {
                "one connection cut": lambda _, choices: proxy.cut_one(choices),
                "all connections cut": lambda _, choices: proxy.cut_all(choices),
                "bytes swallowed": lambda _, choices: proxy.swallow(choices),
            }
        if self.forgets:
            strikes |= faults.FORGETFUL.get(scheme, {})
        what = choices.choice(["SIGKILL", "SIGSTOP", "SIGSTOP for a while", *strikes])
        victim = choices.choice(self._running)
        if what == "SIGKILL":
            fault = faults.kill(victim.pid)
            if victim.wait() != -signal.SIGKILL:
                self._errors.append(f"process {victim.pid} had ended with {victim.returncode}")
            _close(victim)
            self._running.remove(victim)
            self._start()
            return fault
        if what.startswith("SIGSTOP"):
            return faults.stop(victim.pid, choices.choice((0.2, 0.5)) if what == "SIGSTOP" else 1.3 * TTL)
        return faults.strike_service(self.url, what, strikes[what], choices)

    def _end(self) -> None:
        for one in self._running:
            _close(one)
        for one in self._running:
            try:
                one.wait(END)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
                self._errors.append(f"process {one.pid} did not end within {END:g} s")
            else:
                if one.returncode:
                    self._errors.append(f"process {one.pid} ended with {one.returncode}")


def _close(worker: subprocess.Popen[bytes]) -> None:
    """Close the standard input of *worker*, which tells it to end."""
    assert worker.stdin is not None
    worker.stdin.close()
