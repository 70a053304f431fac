"""``python -m bench.pairs``: what one acquire and release costs, beside what one would use instead.

Ours and the peer's rounds take turns, so that whatever else the machine does slows both. A ratio is the
median of those of the rounds.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import redis

import distlock
from loadtest.lock_services import open_lock_service

#: Makes a lock of a name, for ``with``.
Lock = Callable[[str], AbstractContextManager[object]]

#: Seconds. Nobody waits in vain for so long.
PATIENCE = 60.0


def ours(url: str) -> Lock:
    return distlock.connect(url, prefix="bench", timeout=PATIENCE).lock


def redis_py(url: str) -> Lock:
    client = redis.Redis.from_url(url)
    return lambda name: client.lock(name, timeout=10, blocking_timeout=PATIENCE)


def flock(url: str) -> Lock:
    """The floor: no fence, no time-out, no order, and a child that lives on keeps it."""
    directory = url.removeprefix("file://")
    os.makedirs(directory, exist_ok=True)

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        descriptor = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    return lock


#: What one would use instead of each lock service of ours.
PEERS: dict[str, tuple[str, Callable[[str], Lock]]] = {
    "file": ("flock", flock),
    "redis": ("redis-py", redis_py),
}


def alone(lock: Lock, pairs: int) -> float:
    """Processor seconds of a pair, while nobody else wants the lock."""
    began = time.process_time()
    for _ in range(pairs):
        with lock("alone"):
            pass
    return (time.process_time() - began) / pairs


def crowd(lock: Lock, threads: int, seconds: float) -> float:
    """Pairs a second of so many threads that all want one lock."""
    began = time.monotonic()
    counts: list[int] = []

    def work() -> None:
        count = 0
        # At least once: a machine that is busy may need longer for it.
        while not count or time.monotonic() < began + seconds:
            with lock("crowd"):
                count += 1
        counts.append(count)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    return sum(counts) / (time.monotonic() - began)


def serve(orders: Connection, make: Callable[[str], Lock], url: str) -> None:
    """Another process: it does what it is told, and says what that cost."""
    lock = make(url)
    with lock("warm"):
        pass
    while (task := orders.recv()) is not None:
        orders.send(task(lock))


class Crew:
    """Processes that use one kind of lock."""

    def __init__(self, size: int, make: Callable[[str], Lock], url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._members: list[tuple[Any, Connection]] = []
        for _ in range(size):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there, make, url), daemon=True)
            process.start()
            there.close()
            self._members.append((process, here))

    def do(self, task: Callable[[Lock], float], members: int | None = None) -> float:
        """Have *members* of them (None: all) do *task* at the same time. Returns the sum."""
        busy = [orders for _, orders in self._members[:members]]
        for orders in busy:
            orders.send(task)
        values: list[float] = [orders.recv() for orders in busy]
        return sum(values)

    def end(self) -> None:
        for process, orders in self._members:
            orders.send(None)
            process.join(PATIENCE)


def compare(
    crews: Sequence[Crew], task: Callable[[Lock], float], rounds: int, members: int | None
) -> list[float]:
    """Ours, the peer's, and the ratio of the two."""
    measured: list[tuple[float, ...]] = []
    for number in range(rounds):
        order = crews if number % 2 else crews[::-1]
        values = {id(crew): crew.do(task, members) for crew in order}
        measured.append(tuple(values[id(crew)] for crew in crews))
    mine, theirs = (statistics.median(column) for column in zip(*measured, strict=True))
    return [mine, theirs, statistics.median(one / other for one, other in measured)]


def measure(service: str, words: argparse.Namespace) -> Iterator[str]:
    name, peer = PEERS[service]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distlock-bench-")))
        url = stack.enter_context(open_lock_service(service, directory))
        crews = []
        for make, of in ((ours, url), (peer, url if service == "redis" else f"file://{directory}/peer")):
            crews.append(Crew(words.processes, make, of))
            stack.callback(crews[-1].end)
        cost = compare(crews, partial(alone, pairs=words.pairs), words.rounds, 1)
        what = f"{service}, free: CPU of a pair"
        yield f"{what:<34}{cost[0] * 1e6:>8.0f} us {name:>10}{cost[1] * 1e6:>8.0f} us{cost[2]:>9.2f} x"
        task = partial(crowd, threads=words.threads, seconds=words.seconds)
        rate = compare(crews, task, words.rounds, None)
        what = f"{service}, {words.processes} x {words.threads} on one name"
        yield f"{what:<34}{rate[0]:>8.0f} /s {name:>10}{rate[1]:>8.0f} /s{rate[2]:>9.2f} x"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("services", nargs="*", metavar="service", help=f"of {', '.join(PEERS)}; default: all")
    parser.add_argument("--rounds", type=int, default=20, help="of each measurement (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=300, help="in a free round (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="that contend (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=8, help="of each of them (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of such a round (default: %(default)s)")
    words = parser.parse_args(arguments)
    for service in words.services or PEERS:
        if service not in PEERS:
            parser.error(f"{service} is none of {', '.join(PEERS)}.")
        for line in measure(service, words):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
