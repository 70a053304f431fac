"""The engine by itself: acquire and release over a lock service that costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import distlock
from bench.bench import Bench
from bench.locks import PATIENCE
from bench.measures import Figures
from bench.table import Table, Target

#: One thread has the lock again and again; threads that pass it on; and what a mutex costs those.
ALONE, PASSED, MUTEX = "distlock, alone", "distlock, passed on", "threading.Lock, contended"
THREADS = 8
MEASURES = ("pair", "pass")
WHY = "the-engine-by-itself"
TARGETS = (
    Target("pass", 9.0, ours=ALONE, why=WHY),
    Target("pass", 25.0, ours=PASSED, why=WHY),
)


def measure(bench: Bench) -> Iterator[Table]:
    locks = distlock.connect("nothing://", backend="bench.nothing.NothingBackend", timeout=PATIENCE)
    lock, mutex, pairs = locks.lock("hot"), threading.Lock(), 10 * bench.pairs

    def pair() -> None:
        grant = lock.acquire()
        assert grant
        grant.release()

    def pair_of_mutex() -> None:
        with mutex:
            pass

    measured = {
        ALONE: partial(timed, pair, pairs, 1),
        PASSED: partial(timed, pair, pairs, THREADS),
        MUTEX: partial(timed, pair_of_mutex, pairs, THREADS),
    }
    title = f"The engine over a lock service that costs nothing; {THREADS} threads pass it on"
    try:
        yield Table("engine", title, bench.in_turns(measured), MEASURES, TARGETS)
    finally:
        locks.close()


def timed(pair: Callable[[], None], pairs: int, threads: int) -> Figures:
    """What a pair costs when so many *threads* share *pairs* of them."""

    def work() -> None:
        for _ in range(pairs // threads):
            pair()

    crew = [threading.Thread(target=work) for _ in range(threads)]
    began, cpu = time.perf_counter(), time.process_time()
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    return {"pair": (time.perf_counter() - began) / pairs, "pass": (time.process_time() - cpu) / pairs}
