"""The judge of a soak. It uses no code of distlock: it knows only what the processes have noted.

A holder takes the time, then looks whether its lock is lost, and notes the time if it is not. So it had the
lock at that time. A hold lasts from the first such moment to the last one, whatever was done to the process
in between; two holds that overlap here did overlap.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from tests.soak.notes import Attempt, Fault, History, LatchCall

#: A wait of this many seconds is looked at, and how many who came later may have the lock before it ends.
LONG, MOST_BEFORE = 1.0, 300


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. *admitted*: the pages say that the fault before it does this."""

    rule: str
    said: str
    at: float
    admitted: bool = False


def judge(history: History, ttl: float, patience: float) -> list[Violation]:
    """Return the violations of *history*, the earliest first.

    *ttl*: the lease of each lock, seconds. *patience*: how long a lock may be free while somebody waits.
    """
    found: list[Violation] = []
    by_name: dict[tuple[str, bool], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        by_name[attempt.name, attempt.kind == "permit"].append(attempt)
    for attempts in by_name.values():
        found += _overlaps(attempts, history.faults)
        found += _fences(attempts, history.faults)
        found += _forgotten(attempts, history.faults, ttl, patience)
        found += _overtaken(attempts, history.faults)
    found += _latches(history.latches)
    for process, left in history.left.items():
        found += [Violation("leak", f"process {process} left {what}", math.inf) for what in left]
    forgot = _forgot(history.faults, -math.inf, math.inf)
    found += [
        # A service that has lost its data has lost its latches, too.
        Violation("error", said, math.inf, forgot and "LatchNotFound" in said)
        for said in history.errors
    ]
    return sorted(found, key=lambda violation: violation.at)


def conflict(one: Attempt, other: Attempt) -> bool:
    """Return whether *one* and *other* must not hold their name at the same time."""
    if one.caller == other.caller and "rlock" in (one.kind, other.kind):
        return False
    return not (one.kind == other.kind == "read")


def _overlaps(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    holds = sorted(
        ((attempt.granted, attempt.sure, attempt) for attempt in attempts if attempt.granted is not None),
        key=itemgetter(0),
    )
    current: list[tuple[float, Attempt]] = []
    for began, ended, attempt in holds:
        current = [(until, one) for until, one in current if until > began]
        if attempt.kind == "permit":
            out = attempt.permits + sum(one.permits for _, one in current)
            limit = max(attempt.limit, *(one.limit for _, one in current), 0)
            if out > limit:
                said = f"{attempt.name}: {out} permits of {limit} were out"
                earliest = min((one.granted or 0.0 for _, one in current), default=began)
                yield Violation("permits", said, began, _forgot(faults, earliest, began))
        else:
            for until, one in current:
                if conflict(attempt, one):
                    yield Violation(
                        "two at once",
                        f"{attempt.name}: {one.caller} ({one.kind}, fence {one.fence}) and {attempt.caller} "
                        f"({attempt.kind}, fence {attempt.fence}) for {min(until, ended) - began:.4f} s",
                        began,
                        _forgot(faults, one.granted or 0.0, began),
                    )
        current.append((ended, attempt))


def _forgot(faults: list[Fault], since: float, until: float) -> bool:
    return any(fault.forgets and since <= fault.ended and fault.began <= until for fault in faults)


def _fences(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    """A writer's fence is larger than that of each writer whose grant it could know when it asked."""
    writers = [
        one for one in attempts if one.granted is not None and one.fence and one.kind in {"lock", "write"}
    ]
    by_grant = sorted(writers, key=lambda one: one.granted or 0.0)
    largest: Attempt | None = None
    seen = 0
    for one in sorted(writers, key=lambda writer: writer.asked):
        while seen < len(by_grant) and (by_grant[seen].granted or 0.0) < one.asked:
            other = by_grant[seen]
            if largest is None or (other.fence or ()) > (largest.fence or ()):
                largest = other
            seen += 1
        if largest is not None and (one.fence or ()) <= (largest.fence or ()):
            yield Violation(
                "fences",
                f"{one.name}: {one.caller} asked after {largest.caller} had fence {largest.fence}, "
                f"and got {one.fence}",
                one.granted or 0.0,
                _forgot(faults, largest.granted or 0.0, one.granted or 0.0),
            )


def _forgotten(
    attempts: list[Attempt], faults: list[Fault], ttl: float, patience: float
) -> Iterator[Violation]:
    """Nobody may wait for *patience* seconds while the lock is free."""
    gaps = list(_gaps(sorted(_taken(attempts, faults, ttl)), patience))
    for attempt in attempts:
        ended = attempt.granted if attempt.granted is not None else attempt.refused
        if ended is None or attempt.how not in {"", "timeout"}:
            continue
        for began, until in gaps:
            free = min(until, ended) - max(began, attempt.asked)
            if free > patience:
                yield Violation(
                    "forgotten",
                    f"{attempt.name}: {attempt.caller} waited for {ended - attempt.asked:.2f} s for its "
                    f"{attempt.kind}, {free:.2f} s of them while nobody had it",
                    max(began, attempt.asked),
                )


def _gaps(taken: list[tuple[float, float]], longest: float) -> Iterator[tuple[float, float]]:
    """Yield the times longer than *longest* that no interval of *taken*, which are sorted, covers."""
    covered = -math.inf
    for began, until in taken:
        if began - covered > longest:
            yield covered, began
        covered = max(covered, until)
    yield covered, math.inf


def _overtaken(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    """Nobody may wait while many who came later get the lock: processes take turns, and callers in them."""
    asked = [attempt.asked for attempt in attempts]
    for place, attempt in enumerate(attempts):
        ended = attempt.granted if attempt.granted is not None else attempt.refused
        if ended is None or ended - attempt.asked < LONG or attempt.how not in {"", "timeout"}:
            continue
        if any(
            (fault.process == attempt.process or fault.what == "bytes swallowed")
            and fault.began < ended
            and attempt.asked < fault.ended
            for fault in faults
        ):
            # A waiter that does not respond, or whose answers are swallowed, is skipped.
            continue
        later = attempts[place + 1 : bisect_left(asked, ended)]
        first = [one for one in later if one.granted is not None and one.granted < ended]
        if len(first) > MOST_BEFORE:
            yield Violation(
                "overtaken",
                f"{attempt.name}: {attempt.caller} waited for {ended - attempt.asked:.2f} s for its "
                f"{attempt.kind}, and {len(first)} who asked later got theirs",
                ended,
            )


def _taken(attempts: list[Attempt], faults: list[Fault], ttl: float) -> Iterator[tuple[float, float]]:
    """Yield the times in which the name may have been taken, or nobody could take it.

    A hold that ended without a release in order is over a lease and a half after its holder saw it last. A
    process that was killed may have been granted the lock without noting it. One that was stopped notes it
    when it goes on.
    """
    for attempt in attempts:
        if attempt.granted is not None:
            clean = attempt.released is not None and not attempt.lost
            yield (
                attempt.granted,
                attempt.released if clean and attempt.released else attempt.sure + 1.5 * ttl,
            )
    of_process: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        of_process[attempt.process].append(attempt)
    for fault in faults:
        if fault.process is None:
            yield fault.began, fault.ended
        elif any(_is_open(attempt, fault) for attempt in of_process[fault.process]):
            yield fault.began, fault.ended + (1.5 * ttl if fault.what == "SIGKILL" else 0.0)


def _is_open(attempt: Attempt, fault: Fault) -> bool:
    """Return whether *attempt*, of the process that *fault* struck, had no answer by then."""
    answered = attempt.granted if attempt.granted is not None else attempt.refused
    return attempt.asked <= fault.ended and (answered is None or answered >= fault.began)


def _latches(calls: list[LatchCall]) -> Iterator[Violation]:
    """Nobody passes a latch before as many of its parts are counted as it has."""
    counted: dict[str, dict[str, float]] = defaultdict(dict)
    for call in sorted(calls, key=lambda call: call.at):
        if call.part is not None:
            counted[call.name].setdefault(call.part, call.at)
        elif len(counted[call.name]) < call.total:
            yield Violation(
                "latch",
                f"{call.name}: {call.caller} passed when {len(counted[call.name])} of {call.total} parts had "
                "been counted",
                call.at,
            )
