"""Redis, and nobody else wants the lock: what acquire and release cost, near and 1 ms away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.bench import Bench
from bench.table import Table, Target

KINDS = ("distlock", "redis-py", "two bare commands")
MORE = ("distlock, its backend alone", "python-redis-lock", "pottery", "sherlock", "django-redis")
#: Seconds of round-trip time more than the loopback, and the share of redis-py's time.
TARGETS = {0.0: 0.60, 0.001: 0.55}


def measure(bench: Bench) -> Iterator[Table]:
    for distance, bound in TARGETS.items():
        with bench.crews(bench.few(KINDS, MORE), 1, "redis", distance) as crews:
            where = f"{distance * 1000:g} ms farther away" if distance else "on the loopback"
            title = f"Redis {where}, one thread, nobody else wants the lock"
            targets = [Target("pair", bound, peer="redis-py", why="redis-nobody-else-wants-the-lock")]
            # What waits for a network varies little.
            measured = replace(bench, pairs=bench.pairs // 3) if distance else bench
            yield measured.alone("uncontended", title, crews, "redis", targets)
