"""``python -m bench.metrics``: processor time of one acquire and release, without metrics and with each kind.

The rounds of all kinds take turns, so that whatever else the machine does slows down all of them. The price
of a kind is the median of the rounds' differences.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import opentelemetry.metrics
import opentelemetry.trace

import distlock
from distlock import metrics

#: How many microseconds of processor time metrics may cost per acquisition.
TARGET = 30.0
PLAIN = "none"
#: Prometheus in its multiprocess mode, which gunicorn's workers need: its values are in files.
SEVERAL = "prometheus, processes"


def pair(locks: distlock.Locks, pairs: int) -> float:
    """Return the processor seconds of a pair of acquire and release."""
    began = time.process_time()
    for _ in range(pairs):
        with locks.lock("product_1"):
            pass
    return (time.process_time() - began) / pairs


def set_up_sdk(spans: bool) -> bool:
    """Set up OpenTelemetry's SDK as a site does. Return False if it is not installed."""
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
    except ModuleNotFoundError:
        return False
    opentelemetry.metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    if spans:
        opentelemetry.trace.set_tracer_provider(TracerProvider())
    return True


def client(kind: str) -> distlock.Locks:
    listener = None if kind == PLAIN else metrics.listener(kind.partition(",")[0], kind)
    return distlock.connect(f"memory://{kind}", listener=listener)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of each (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=2000, help="in a round (default: %(default)s)")
    parser.add_argument("--processes", action="store_true", help="Prometheus with PROMETHEUS_MULTIPROC_DIR")
    parser.add_argument("--spans", action="store_true", help="OpenTelemetry with its SDK's spans, too")
    words = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder:
        if words.processes:
            # prometheus_client reads the variable when it is imported.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        prometheus = SEVERAL if words.processes else "prometheus"
        there = set_up_sdk(words.spans)
        telemetry = "opentelemetry" + ("" if there else ", no SDK") + (", spans" if words.spans else "")
        clients = {kind: client(kind) for kind in (PLAIN, prometheus, telemetry)}
        measured: dict[str, list[float]] = {kind: [] for kind in clients}
        for locks in clients.values():
            pair(locks, words.pairs)
        for number in range(words.rounds):
            for kind in list(clients)[:: 1 if number % 2 else -1]:
                measured[kind].append(pair(clients[kind], words.pairs))
        for kind, times in measured.items():
            price = statistics.median(one - plain for one, plain in zip(times, measured[PLAIN], strict=True))
            # The cost of OpenTelemetry is mostly its SDK's, so it has no target.
            target = f" (target: {TARGET:g})" if kind == prometheus else ""
            more = "" if kind == PLAIN else f"{price * 1e6:>8.1f} us more{target}"
            print(f"{kind:<24}{statistics.median(times) * 1e6:>8.1f} us{more}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
