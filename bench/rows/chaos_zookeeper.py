"""ZooKeeper, and what may go wrong while eight processes want one lock: sessions end, connections are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from bench.bench import Bench
from bench.crew import Crew
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

#: A session lives a third longer than its holds, and the server looks every half second: seconds.
LEASE = 1.3 * SHORT_TTL + 0.5
#: A request to delete a node: the number of its kind, and a path.
RELEASES = re.compile(rb"\x00\x00\x00\x02\x00\x00..?/", re.DOTALL)


def measure(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("zookeeper")
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(url))
        crew = Crew(PROCESSES, "distlock", relay.url)
        stack.callback(crew.end)
        troubles = [
            Trouble("all connections are cut", once(relay.cut), MISSED),
            Trouble("connections die of a release", partial(deaths, relay, RELEASES, True), MISSED),
            Trouble("releases get lost", partial(deaths, relay, RELEASES, False), MISSED),
            Trouble(
                f"one stands still for {LATE:g} s",
                once(lambda: stand_still(crew.pids[0], LATE)),
                LATE + MISSED,
            ),
            Trouble(
                "the session of the holder, which stands still, ends",
                partial(sleep_through_lease, url, LEASE + 1.0),
                LEASE + MISSED,
            ),
            Trouble("one is killed with the lock", partial(die, url), LEASE + MISSED),
        ]
        yield table(bench, "chaos-zookeeper", "zookeeper", [(crew, each) for each in troubles])
