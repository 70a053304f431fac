"""Rows with faults while eight processes want one lock: nothing breaks, and all processes soon go on."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import redis

import distlock
from bench.bench import Bench, Contestant
from bench.contest import NAME, ContestPlan
from bench.crew import BenchError, Crew
from bench.figures import Table, Target
from bench.locks import PATIENCE, Lock
from bench.network import Relay
from distlock.backends.base import EXCLUSIVE
from distlock.backends.redis.scripts import RELEASE

#: A short ttl, seconds. The lock of a dead or stopped process is free when its lease ends.
SHORT_TTL = 2.0
SHORT_LEASE = "distlock, ttl=2"
#: How many seconds a lost or late message may cost: half a second until a hand-off has to be acknowledged,
#: one for the longest pause between polls of so few waiters, and one for a busy machine. A lease lasts ten
#: seconds, so this finds a wait that ends only with a lease.
MISSED = 2.5
#: For how many seconds a process is stopped, or a push delayed: shorter than a lease, and longer than the
#: acknowledgement of a hand-off may take.
LATE = 0.8
PROCESSES = 8
TITLES = {"redis": "Redis", "zookeeper": "ZooKeeper"}
#: For how many seconds the lock is held. Two holders at once are noticed only while both are inside.
BODY = 0.002
MEASURES = ("longest", "p99", "p50", "rate", "jain", "requests", "commands")
#: How many connections are killed in a round.
DEATHS = 5
#: For how many seconds pushes are delayed. Meanwhile each hand-off waits for a poll.
SPELL = 1.0
REDIS_RELEASES = re.compile(re.escape(RELEASE[EXCLUSIVE].by_digest[-42:-2]))
#: After how many seconds a dead session ends: it lasts a third longer than its holds, and the server looks
#: for ended sessions twice a second.
SESSION_LEASE = 1.3 * SHORT_TTL + 0.5
#: Matches a request to delete a node: the type of the request, and a path.
ZOOKEEPER_RELEASES = re.compile(rb"\x00\x00\x00\x02\x00\x00..?/", re.DOTALL)

#: In the victim, the grant, which outlives the task that took it.
KEPT_GRANTS: list[distlock.Grant] = []


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault in a round."""

    what: str
    #: Causes the fault, in a round whose seconds it is given.
    disturb: Callable[[float], None]
    #: The longest wait that a caller may have then, seconds.
    bound: float


def measure_chaos(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("redis")
    with ExitStack() as stack:
        client = stack.enter_context(redis.Redis.from_url(url))
        relay = stack.enter_context(Relay(url))
        plain, on_push = (Crew(PROCESSES, kind, relay.url) for kind in ("distlock", "distlock, on the push"))
        stack.callback(plain.end)
        stack.callback(on_push.end)

        def deliver_late(seconds: float) -> None:
            before, relay.late = relay.delayed, LATE
            time.sleep(SPELL)
            relay.late = 0.0
            if relay.delayed == before:
                raise BenchError("No push came late: nothing was tried.")

        late = Trouble(f"pushes come {LATE:g} s late", deliver_late, SPELL + MISSED)
        cut = Trouble("all connections are cut", halfway(relay.cut), MISSED)
        died = Trouble(
            "connections die of a release", partial(cut_connections, relay, REDIS_RELEASES, True), MISSED
        )
        lost = Trouble("releases get lost", partial(cut_connections, relay, REDIS_RELEASES, False), MISSED)
        others = [
            Trouble("scripts are flushed", halfway(client.script_flush), MISSED),
            Trouble(
                "subscriptions are cut", halfway(lambda: client.client_kill_filter(_type="pubsub")), MISSED
            ),
            Trouble(
                f"one stands still for {LATE:g} s",
                halfway(lambda: stand_still(plain.pids[0], LATE)),
                LATE + MISSED,
            ),
            Trouble(
                "one stands still with the lock past its lease",
                partial(sleep_through_lease, url, SHORT_TTL + 1.0),
                SHORT_TTL + MISSED,
            ),
            Trouble("one is killed with the lock", partial(kill_holder, url), SHORT_TTL + MISSED),
        ]
        troubled = [(plain, each) for each in (late, cut, died, lost, *others)]
        # With locks on the push, no process may be stopped before it has acknowledged one, so the faults that
        # stop processes are left out.
        troubled += [(on_push, each) for each in ((late,) if bench.quick else (late, cut, died, lost))]
        yield trouble_table(bench, "chaos", "redis", troubled)


def measure_chaos_zookeeper(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("zookeeper")
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(url))
        crew = Crew(PROCESSES, "distlock", relay.url)
        stack.callback(crew.end)
        troubles = [
            Trouble("all connections are cut", halfway(relay.cut), MISSED),
            Trouble(
                "connections die of a release",
                partial(cut_connections, relay, ZOOKEEPER_RELEASES, True),
                MISSED,
            ),
            Trouble("releases get lost", partial(cut_connections, relay, ZOOKEEPER_RELEASES, False), MISSED),
            Trouble(
                f"one stands still for {LATE:g} s",
                halfway(lambda: stand_still(crew.pids[0], LATE)),
                LATE + MISSED,
            ),
            Trouble(
                "the session of the holder, which stands still, ends",
                partial(sleep_through_lease, url, SESSION_LEASE + 1.0),
                SESSION_LEASE + MISSED,
            ),
            Trouble("one is killed with the lock", partial(kill_holder, url), SESSION_LEASE + MISSED),
        ]
        yield trouble_table(bench, "chaos-zookeeper", "zookeeper", [(crew, each) for each in troubles])


def trouble_table(bench: Bench, row: str, service: str, troubles: Sequence[tuple[Crew, Trouble]]) -> Table:
    """Measure each fault. Every round has to keep its bound, and the lock has to be free in the end."""
    plan = ContestPlan(seconds=max(1.0, bench.seconds), body=BODY)
    contestants, targets = [], []
    for crew, trouble in troubles:
        contestants.append(Contestant(crew, plan, suffix=f", {trouble.what}", meanwhile=trouble.disturb))
        targets.append(Target("longest", 1000 * trouble.bound, ours=contestants[-1].name, each=True))
    crowd = f"{PROCESSES} processes of 1 thread"
    title = f"{TITLES[service]}, {crowd}, a body of {BODY * 1000:g} ms, and some trouble"
    # Each round is judged by its longest wait, so more rounds would not give a better median.
    rounds = min(bench.rounds, 1 if bench.quick else 2)
    made = replace(bench, rounds=rounds).contest(row, title, contestants, service, targets, MEASURES)
    made.violations += stranded(bench.services.url(service))
    return made


def take_and_keep(lock: Lock) -> None:
    # This lock is lost on purpose, so its log records are noise.
    logging.getLogger("distlock").setLevel(logging.CRITICAL)
    KEPT_GRANTS.append(lock(NAME).__enter__())


def finds_it_lost(lock: Lock) -> bool:
    """Return whether the process knows that it has lost its lock."""
    try:
        KEPT_GRANTS[0].check()
    except distlock.LockLost:
        return True
    return False


def kill_holder(url: str, seconds: float) -> None:
    """Kill a process that holds the lock."""
    with victim_with_lock(url, seconds) as victim:
        os.kill(victim.pids[0], signal.SIGKILL)


def sleep_through_lease(url: str, lease: float, seconds: float) -> None:
    """Stop a process with the lock for *lease* seconds. Raise `BenchError` if it does not notice the loss."""
    with victim_with_lock(url, seconds) as victim:
        stand_still(victim.pids[0], lease)
        if victim.do([finds_it_lost]) != [True]:
            raise BenchError("A process that stood still does not know that it has lost its lock.")


@contextmanager
def victim_with_lock(url: str, seconds: float) -> Iterator[Crew]:
    """Yield a process that holds the lock after the first third of a round of *seconds*."""
    victim = Crew(1, SHORT_LEASE, url)
    try:
        time.sleep(seconds / 3)
        victim.do([take_and_keep])
        yield victim
    finally:
        victim.end()


def stand_still(pid: int, seconds: float) -> None:
    """Stop the process for *seconds*. A shell does it, so that it goes on even if the bench is killed."""
    command = f"kill -s STOP {pid}; sleep {seconds}; kill -s CONT {pid}"
    subprocess.run(["sh", "-c", command], start_new_session=True, check=True)


def cut_connections(relay: Relay, of: re.Pattern[bytes], delivers: bool, seconds: float) -> None:
    """Kill connections that send a request matching *of*, which the server still receives if *delivers*."""
    before, relay.delivers = relay.died, delivers
    for _ in range(DEATHS):
        relay.fatal = of
        time.sleep(seconds / (2 * DEATHS))
    relay.fatal = None
    if relay.died == before:
        raise BenchError("No connection died: nothing was tried.")


def halfway(trouble: Callable[[], object]) -> Callable[[float], None]:
    """Return a function that calls *trouble* in the middle of a round."""

    def disturb(seconds: float) -> None:
        time.sleep(seconds / 2)
        trouble()

    return disturb


def stranded(url: str, patience: float = PATIENCE) -> list[str]:
    """Return a violation if the lock is not free within *patience* seconds."""
    locks, deadline = distlock.connect(url, prefix="bench"), time.monotonic() + patience
    try:
        # The lease of a killed process has to end, and a release has to arrive.
        while (state := locks.inspect(NAME)).holder or state.queue:
            if time.monotonic() > deadline:
                return [f"Nobody wants the lock any more, and it is not free: {state}"]
            time.sleep(0.1)
    finally:
        locks.close()
    return []
