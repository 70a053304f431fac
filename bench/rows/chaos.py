"""Redis, and what may go wrong while eight processes want one lock: nothing breaks, and all go on soon."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import redis

from bench.bench import Bench
from bench.crew import BenchError, Crew
from bench.relay import Relay
from bench.table import Table
from bench.trouble import (
    LATE,
    MISSED,
    PROCESSES,
    SHORT_TTL,
    Trouble,
    deaths,
    die,
    once,
    sleep_through_lease,
    stand_still,
    table,
)
from distlock.backends.base import EXCLUSIVE
from distlock.backends.redis.scripts import RELEASE

KINDS = ("distlock", "distlock, on the push")
#: For so long pushes come late, seconds. Each hand-off waits for a poll meanwhile.
SPELL = 1.0
RELEASES = re.compile(re.escape(RELEASE[EXCLUSIVE].by_digest[-42:-2]))


def measure(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("redis")
    with ExitStack() as stack:
        client = stack.enter_context(redis.Redis.from_url(url))
        relay = stack.enter_context(Relay(url))
        plain, on_push = (Crew(PROCESSES, kind, relay.url) for kind in KINDS)
        stack.callback(plain.end)
        stack.callback(on_push.end)

        def deliver_late(seconds: float) -> None:
            before, relay.late = relay.delayed, LATE
            time.sleep(SPELL)
            relay.late = 0.0
            if relay.delayed == before:
                raise BenchError("No push came late: nothing was tried.")

        late = Trouble(f"pushes come {LATE:g} s late", deliver_late, SPELL + MISSED)
        cut = Trouble("all connections are cut", once(relay.cut), MISSED)
        died = Trouble("connections die of a release", partial(deaths, relay, RELEASES, True), MISSED)
        lost = Trouble("releases get lost", partial(deaths, relay, RELEASES, False), MISSED)
        others = [
            Trouble("scripts are flushed", once(client.script_flush), MISSED),
            Trouble("subscriptions are cut", once(lambda: client.client_kill_filter(_type="pubsub")), MISSED),
            Trouble(
                f"one stands still for {LATE:g} s",
                once(lambda: stand_still(plain.pids[0], LATE)),
                LATE + MISSED,
            ),
            Trouble(
                "one stands still with the lock past its lease",
                partial(sleep_through_lease, url, SHORT_TTL + 1.0),
                SHORT_TTL + MISSED,
            ),
            Trouble("one is killed with the lock", partial(die, url), SHORT_TTL + MISSED),
        ]
        troubled = [(plain, each) for each in (late, cut, died, lost, *others)]
        # On a push nobody may stand still, until it is confirmed: that one is left out.
        troubled += [(on_push, each) for each in ((late,) if bench.quick else (late, cut, died, lost))]
        yield table(bench, "chaos", "redis", troubled)
