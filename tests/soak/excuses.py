"""Faults of a soak excuse calls that fail, and locks that nobody can take for a while.

The pages of the lock services say whom a fault costs how long. Nothing more is excused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.soak.notes import BEGINS, KINDS_IN_FILES, Attempt, Fault, Kind
from tests.soak.promises import Promises

#: A stretch of time: when it begins and ends.
Span = tuple[float, float]

#: For how many seconds after a fault a new call may still fail.
FAILS_AFTER = 1.0
#: The caller of a forked child, which is another process, and begins with the fault.
CHILD = "child"
#: The faults that strike only some callers of a process, and the word with which these callers' names begin.
OF_ONE_CALLER = {
    "cancelled tasks": "cancelled",
    "client closed": "closed",
    "client dropped": "dropped",
    "fork": CHILD,
    "interrupts": "interrupted",
}


@dataclass(frozen=True, slots=True)
class Excuses:
    """The faults that may be why calls fail.

    A process that stands still may be writing to a file, and others wait for its end.
    """

    faults: list[Fault]
    promises: Promises

    def explain(
        self, caller: str, began: float, ended: float, kind: Kind, after: float = FAILS_AFTER
    ) -> bool:
        """Return whether a fault may be why *caller* failed from *began* to *ended*, or *after* it."""
        in_files, after = self.promises.in_files or kind in KINDS_IN_FILES, after + self.promises.slack
        return any(
            _may_strike(fault, caller, in_files) and fault.began <= ended and began <= fault.ended + after
            for fault in self.faults
        )


def _may_strike(fault: Fault, caller: str, in_files: bool) -> bool:
    if fault.process is None or (fault.what == "SIGSTOP" and in_files):
        return True
    process, _, word = caller.partition("/")
    if word == CHILD and fault.what == "fork":
        return True
    return process == str(fault.process) and word.startswith(OF_ONE_CALLER.get(fault.what, ""))


def held(attempts: list[Attempt], faults: list[Fault], promises: Promises) -> Iterator[Span]:
    """Yield the times in which one of *attempts*, all for one name, has the name or keeps it from others.

    A holder that is killed, or loses the lock, keeps it for the rest of its lease. A caller that waits for
    several names may have this one while it waits for the others.
    """
    killed = {fault.process: fault.began for fault in faults if fault.what == "SIGKILL"}
    for attempt in attempts:
        began = attempt.asked if attempt.of_several else attempt.granted
        if began is None:
            continue
        ended = attempt.released if attempt.granted is not None else attempt.refused
        if ended is None:
            ended = killed.get(attempt.process, math.inf) + promises.killed
        if attempt.lost:
            ended = min(ended, attempt.sure + promises.stopped)
        yield began, ended


def excused(attempts: list[Attempt], faults: list[Fault], promises: Promises) -> Iterator[Span]:
    """Yield the times in which a fault may be why nobody takes the name that *attempts* are for.

    A fault of a process counts only if the process wanted the name, and so may have been granted it without
    noting it: one that is killed never will, and one that stands still does so when it goes on.
    """
    of_process: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        of_process[attempt.process].append(attempt)
    for fault in faults:
        if fault.process is None:
            yield fault.began, fault.ended
        elif fault.what != BEGINS and any(_is_open(one, fault) for one in of_process[fault.process]):
            if fault.what == "SIGKILL":
                yield fault.began, fault.ended + promises.killed
            elif fault.what in {"SIGSTOP", "no time"}:
                yield fault.began, min(fault.ended, fault.began + promises.stopped)
            else:
                yield fault.began, fault.ended


def _is_open(attempt: Attempt, fault: Fault) -> bool:
    """Return whether *attempt*, of the process that *fault* struck, had no answer by then, and was struck."""
    word = attempt.caller.partition("/")[2]
    is_struck = word.startswith(OF_ONE_CALLER.get(fault.what, ""))
    return is_struck and attempt.asked <= fault.ended and attempt.answered >= fault.began


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of *spans*, the earliest first."""
    found: list[Span] = []
    for began, ended in sorted(spans):
        if found and began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((began, ended))
    return found


def without(span: Span, others: list[Span]) -> Iterator[Span]:
    """Yield the parts of *span* that are in none of *others*, which are merged."""
    began, until = span
    for start, end in others:
        if end <= began:
            continue
        if start >= until:
            break
        if start > began:
            yield began, start
        began = max(began, end)
    if began < until:
        yield began, until


def seconds(spans: list[Span], began: float = -math.inf, ended: float = math.inf) -> float:
    """Return how many seconds of *spans* are between *began* and *ended*."""
    return sum(max(0.0, min(until, ended) - max(since, began)) for since, until in spans)
