"""Pairs of acquire and release, one after the other, while nobody else wants the lock."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.locks import Lock


@dataclass(frozen=True, slots=True)
class Spent:
    """On one pair, seconds."""

    seconds: float
    #: Of the processor, of the whole process.
    cpu: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """The task of one process."""

    pairs: int

    def __call__(self, lock: Lock) -> Spent:
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.pairs):
            with lock("alone"):
                pass
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Spent(seconds / self.pairs, cpu / self.pairs)
