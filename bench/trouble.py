"""What comes to grief while others want the lock, for the rows of chaos."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import distlock
from bench.bench import Bench, Entry
from bench.contest import NAME, Plan
from bench.crew import BenchError, Crew
from bench.locks import PATIENCE, Lock
from bench.relay import Relay
from bench.table import Table, Target

#: Nobody lets go of what a dead or standing process holds before its lease ends: seconds of a short one.
SHORT_TTL = 2.0
SHORT = "distlock, ttl=2"
#: What a message that is not heard, or comes too late, may cost: the window of a hand-off, half a second,
#: and the longest rest between two polls of the few who wait here, a second. The rest is for a busy machine.
#: A lease lives for ten seconds, so one that had to end by itself would be found out.
MISSED = 2.5
#: For so long a process stands still, and pushes are under way, seconds: shorter than a lease, longer than a
#: hand-off is worth.
LATE = 0.8
PROCESSES = 8
TITLES = {"redis": "Redis", "zookeeper": "ZooKeeper"}
#: Of a lock that is given to two at once nothing is seen if nobody stays inside, seconds.
BODY = 0.002
MEASURES = ("longest", "p99", "p50", "rate", "jain", "requests", "commands")
#: How often a connection dies in a round.
DEATHS = 5

#: What the one holds that comes to grief.
KEPT: list[distlock.Grant] = []


@dataclass(frozen=True, slots=True)
class Trouble:
    what: str
    #: What is done in a round of so many seconds.
    disturb: Callable[[float], None]
    #: The longest that anybody may wait then, seconds.
    bound: float


def table(bench: Bench, row: str, service: str, troubled: Sequence[tuple[Crew, Trouble]]) -> Table:
    """A line for each trouble; each round has to keep its bound, and nothing may be left behind."""
    plan = Plan(seconds=max(1.0, bench.seconds), body=BODY)
    entries, targets = [], []
    for crew, trouble in troubled:
        entries.append(Entry(crew, plan, suffix=f", {trouble.what}", meanwhile=trouble.disturb))
        targets.append(Target("longest", 1000 * trouble.bound, ours=entries[-1].name, each=True))
    crowd = f"{PROCESSES} processes of 1 thread"
    title = f"{TITLES[service]}, {crowd}, a body of {BODY * 1000:g} ms, and some trouble"
    # It is about bounds: what keeps them once in a short run is not kept better by a median.
    rounds = min(bench.rounds, 1 if bench.quick else 2)
    made = replace(bench, rounds=rounds).contest(row, title, entries, service, targets, MEASURES)
    made.violations += stranded(bench.services.url(service))
    return made


def take_and_keep(lock: Lock) -> None:
    # It is to lose it.
    logging.getLogger("distlock").setLevel(logging.CRITICAL)
    KEPT.append(lock(NAME).__enter__())


def finds_it_lost(lock: Lock) -> bool:
    """Whether a process that went on knows that its lock is over."""
    try:
        KEPT[0].check()
    except distlock.LockLost:
        return True
    return False


def die(url: str, seconds: float) -> None:
    """A process is killed with the lock."""
    with grieving(url, seconds) as victim:
        os.kill(victim.pids[0], signal.SIGKILL)


def sleep_through_lease(url: str, lease: float, seconds: float) -> None:
    """A process stands still with the lock for longer than its *lease*, and goes on. Raises `BenchError`."""
    with grieving(url, seconds) as victim:
        stand_still(victim.pids[0], lease)
        if victim.do([finds_it_lost]) != [True]:
            raise BenchError("A process that stood still does not know that it has lost its lock.")


@contextmanager
def grieving(url: str, seconds: float) -> Iterator[Crew]:
    """A process that holds the lock from the first third of a round of so many *seconds*."""
    victim = Crew(1, SHORT, url)
    try:
        time.sleep(seconds / 3)
        victim.do([take_and_keep])
        yield victim
    finally:
        victim.end()


def stand_still(pid: int, seconds: float) -> None:
    """By a process of its own: it lets that one go on, also where we are killed meanwhile."""
    command = f"kill -s STOP {pid}; sleep {seconds}; kill -s CONT {pid}"
    subprocess.run(["sh", "-c", command], start_new_session=True, check=True)


def deaths(relay: Relay, of: re.Pattern[bytes], delivers: bool, seconds: float) -> None:
    """Some connections die of what *of* finds in it, which arrives where it *delivers*."""
    before, relay.delivers = relay.died, delivers
    for _ in range(DEATHS):
        relay.fatal = of
        time.sleep(seconds / (2 * DEATHS))
    relay.fatal = None
    if relay.died == before:
        raise BenchError("No connection died: nothing was tried.")


def once(trouble: Callable[[], object]) -> Callable[[float], None]:
    """*trouble* in the middle of a round."""

    def disturb(seconds: float) -> None:
        time.sleep(seconds / 2)
        trouble()

    return disturb


def stranded(url: str, patience: float = PATIENCE) -> list[str]:
    """What is left behind when nobody wants the lock any more. *patience*: until it has gone, seconds."""
    locks, deadline = distlock.connect(url, prefix="bench"), time.monotonic() + patience
    try:
        # Those that were killed have until their lease ends, and a release until it has arrived.
        while (state := locks.inspect(NAME)).holder or state.queue:
            if time.monotonic() > deadline:
                return [f"Nobody wants the lock any more, and it is not free: {state}"]
            time.sleep(0.1)
    finally:
        locks.close()
    return []
