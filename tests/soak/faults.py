"""The faults of a soak that strike from outside: those of the workers, and the order in which all come."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.soak.notes import Fault
from tests.soak.services.service import IO_TIMEOUT, TTL, Strike

#: So many seconds after a calm began, the workers close their clients.
CLOSING = 3.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When faults are drawn: from *began* on, for *storm* seconds, then not for *calm* seconds, and so on.

    In a calm no fault excuses a wait. At its beginning, all workers close their clients, and use them again.
    """

    began: float
    storm: float
    calm: float

    def calm_left(self, now: float) -> float:
        """Return for how many more seconds no fault is drawn."""
        elapsed = (now - self.began) % (self.storm + self.calm)
        return self.storm + self.calm - elapsed if elapsed >= self.storm else 0.0

    def until_closing(self, now: float) -> float:
        """Return in how many seconds the workers close their clients; ``inf``: they do so at the end only."""
        if self.calm <= CLOSING:
            return math.inf
        cycle = self.storm + self.calm
        return (self.began + self.storm + CLOSING - now) % cycle


class Deck:
    """Draws each of *cards* equally often, in an order by chance."""

    def __init__(self, cards: Sequence[str], choices: random.Random) -> None:
        self._cards, self._choices = sorted(cards), choices
        self._left: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._cards)

    def draw(self) -> str:
        if not self._left:
            self._left = self._choices.sample(self._cards, len(self._cards))
        return self._left.pop()


def kill(process: int) -> list[Fault]:
    """End *process* and the children that it has forked."""
    began = time.monotonic()
    # A process that stands still forks no more.
    os.kill(process, signal.SIGSTOP)
    while not stands_still(process):
        threading.Event().wait(0.001)
    struck = [process, *children(process)]
    for one in struck:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    return [Fault("SIGKILL", began, time.monotonic(), one) for one in struck]


def stands_still(process: int) -> bool:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "TZX" for task in tasks)


def children(process: int) -> list[int]:
    """Return the children that *process* has forked. It is stopped."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


#: The names of the faults that strike a worker from outside, and how long each stops it, seconds.
STOPS = {"SIGSTOP": (0.2, 0.5), "SIGSTOP for a while": (1.3 * TTL,)}
OF_WORKERS = ("SIGKILL", *STOPS)


def stop(process: int, seconds: float) -> Fault:
    """Stop *process*, and let it go on after *seconds*."""
    began = time.monotonic()
    os.kill(process, signal.SIGSTOP)
    threading.Event().wait(seconds)
    os.kill(process, signal.SIGCONT)
    return Fault("SIGSTOP", began, time.monotonic(), process)


def strike(one: Strike, choices: random.Random) -> Fault:
    """Strike the lock service."""
    began = time.monotonic()
    answer = one.do(choices)
    ended = time.monotonic()
    process = answer if one.of_one and isinstance(answer, int) else None
    # A call that is answered within its time-out is repeated by nobody, and nobody has given it up.
    lasts = one.lasts + (one.lasts_if_late if ended - began >= IO_TIMEOUT else 0.0)
    return Fault(one.what, began, ended + lasts, process, one.forgets, one.skips)
