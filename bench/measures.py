"""What is measured of a lock: the columns of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.buyers import at
from bench.contest import Part
from bench.services import Work

#: What one contestant reached in one round, by the names of `MEASURES`.
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    #: With its unit, into which *scale* brings it.
    heading: str
    scale: float = 1.0
    digits: int = 0

    def shown(self, figure: float) -> str:
        return f"{figure * self.scale:,.{self.digits}f}"


MEASURES = {
    "rate": Measure("acquisitions/s"),
    "sales": Measure("sales/s"),
    "answer": Measure("median answer, ms", 1e3),
    "late_answer": Measure("p99 answer, ms", 1e3),
    "longest_answer": Measure("longest answer, ms", 1e3),
    "site_cpu": Measure("CPU of the site, ms a sale", 1e3, 2),
    "database_cpu": Measure("CPU of the database, ms a sale", 1e3, 2),
    "pair": Measure("µs a pair", 1e6, 1),
    "pass": Measure("CPU of a pair, µs", 1e6, 1),
    "p50": Measure("median wait, ms", 1e3, 2),
    "p99": Measure("p99 wait, ms", 1e3, 1),
    "hand_over": Measure("median hand-off, ms", 1e3, 2),
    "longest": Measure("longest wait, ms", 1e3),
    "makespan": Measure("until all had it, ms", 1e3, 1),
    "served": Measure("served of what was offered, %", 1e2),
    "changes": Measure("owner changes, threads, %", 1e2),
    "process_changes": Measure("processes, %", 1e2),
    "refused": Measure("refused"),
    "poll": Measure("server time of a poll, µs", 1e6),
    "poll_again": Measure("s until the next one", 1.0, 1),
    "core": Measure("all polls, % of a core", 1e2, 1),
    "few_share": Measure("what the few got, %", 1e2, 1),
    "few_p99": Measure("their p99 wait, ms", 1e3, 1),
    "few_longest": Measure("their longest wait, ms", 1e3),
    "jain": Measure("Jain index", 1.0, 3),
    "wakes": Measure("wake-ups", 1.0, 1),
    "cpu": Measure("CPU here, s/1,000", 1e3, 3),
    "server_cpu": Measure("CPU of the server, s/1,000", 1e3, 3),
    "requests": Measure("requests", 1.0, 2),
    "commands": Measure("server commands", 1.0, 1),
}


def jain(counts: Sequence[int]) -> float:
    """Jain's index of fairness: 1 if all got the same, 1 / n if one got everything."""
    squares = len(counts) * sum(count * count for count in counts)
    return sum(counts) ** 2 / squares if squares else 0.0


def of_contest(parts: Sequence[Part], begin: float, work: Work) -> Figures:
    """The figures of a contest that began at the moment *begin*, and in which the server did *work*."""
    waits = sorted(wait for part in parts for wait in part.waits)
    gaps = sorted(gap for part in parts for gap in part.hand_overs)
    counts = [count for part in parts for count in part.entered]
    acquired, seconds = len(waits), max(part.ended for part in parts) - begin
    return {
        "rate": acquired / seconds,
        "makespan": seconds,
        "p50": at(waits, 0.5),
        "p99": at(waits, 0.99),
        "longest": waits[-1],
        **({"hand_over": at(gaps, 0.5) / 1e9} if gaps else {}),
        "changes": sum(part.changes for part in parts) / max(1, acquired - 1),
        "process_changes": sum(part.process_changes for part in parts) / max(1, acquired - 1),
        "jain": jain(counts),
        **({"wakes": wakes / acquired} if (wakes := sum(part.wakes for part in parts)) else {}),
        "cpu": sum(part.cpu for part in parts) / acquired,
        **of_work(work, acquired),
    }


def of_few(parts: Sequence[Part]) -> Figures:
    """Of the last process, which has fewer threads than the others."""
    waits = sorted(parts[-1].waits)
    acquired = sum(len(part.waits) for part in parts)
    return {"few_share": len(waits) / acquired, "few_p99": at(waits, 0.99), "few_longest": waits[-1]}


def of_work(work: Work, acquired: int) -> Figures:
    """For each acquisition; nothing where the server tells nothing."""
    told = {"requests": work.requests, "commands": work.commands, "server_cpu": work.cpu}
    return {name: figure / acquired for name, figure in told.items() if figure}
