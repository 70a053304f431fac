"""What the judge of a soak says of waits: nobody is forgotten, refused a free lock, or overtaken by many."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby

from tests.soak.excuses import Excuses, Span, excused, held, merged, seconds, without
from tests.soak.notes import Attempt, Fault
from tests.soak.promises import Promises, Violation

#: `overtaken` looks at waits of at least LONG seconds, and lets at most MOST_BEFORE later callers be first.
LONG, MOST_BEFORE = 1.0, 300
#: From so many grants of one process in a row on, another process has waited for too long.
TOO_MANY_LATE = 3


def forgotten(attempts: list[Attempt], faults: list[Fault], promises: Promises) -> Iterator[Violation]:
    """Nobody may wait while the lock is free for too long, or be refused after that.

    What counts is how long it was free without an excuse, since the latest holder and until the next one.
    """
    alone = [attempt for attempt in attempts if not attempt.of_several and not attempt.depth]
    asked_by_grant = {attempt.granted: attempt.asked for attempt in alone}
    excuses = merged(excused(attempts, faults, promises))
    everything = attempts[0].asked, math.inf
    for began, until in without(everything, merged(held(attempts, faults, promises))):
        if until - began <= promises.patience:
            continue
        free = list(without((began, until), excuses))
        # When somebody wanted the lock for the first time in this gap.
        wanted = min((max(began, one.asked) for one in alone if one.answered > began), default=until)
        # The attempt that had it next may have come first.
        next_asked = math.inf if until == math.inf else asked_by_grant.get(until, -math.inf)
        for attempt in alone:
            ended = attempt.answered
            if attempt.how not in {"", "timeout"} or ended == math.inf or ended <= began:
                continue
            in_vain = seconds(free, attempt.asked, ended)
            if in_vain > promises.patience:
                yield Violation(
                    "forgotten",
                    f"{attempt.name}: {attempt.caller} waited for {ended - attempt.asked:.2f} s for its "
                    f"{attempt.kind}, {in_vain:.2f} s of them while nobody had it",
                    max(began, attempt.asked),
                )
            elif (
                attempt.how
                and ended < min(until, next_asked)
                and seconds(free, wanted, attempt.asked) > promises.patience
                and in_vain == ended - attempt.asked
            ):
                yield Violation(
                    "refused",
                    f"{attempt.name}: {attempt.caller} was refused its {attempt.kind} after "
                    f"{ended - attempt.asked:.2f} s, when nobody had had it for {ended - began:.2f} s",
                    ended,
                )


def waited_and_excused(
    attempts: list[Attempt], faults: list[Fault], promises: Promises
) -> tuple[float, float]:
    """Return for how many seconds callers waited for this name, and for how many of them that was excused."""
    waits: list[Span] = [(one.asked, one.answered) for one in attempts if one.answered < math.inf]
    waited, excuses = merged(waits), merged(excused(attempts, faults, promises))
    return seconds(waited), sum(seconds(excuses, *wait) for wait in waited)


def overlong_turns(attempts: list[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """While another process waits, a process hands the lock to its own callers only briefly."""
    patience = excuses.promises.patience
    grants = [one for one in attempts if one.granted is not None and not one.depth]
    grants.sort(key=lambda one: one.granted or 0.0)
    # A wait without an end is that of a process that was killed.
    waits = [one for one in attempts if not one.of_several and patience < one.answered - one.asked < math.inf]
    for process, turn in groupby(grants, key=lambda one: one.process):
        first, *others = turn
        for one in waits if others else ():
            # Until then it may have been the turn of requests that came earlier.
            since = max(first.granted or 0.0, one.asked) + patience
            late = [grant for grant in others if since < (grant.granted or 0.0) < one.answered]
            late = [grant for grant in late if grant.asked > one.asked]
            if one.process == process or len(late) < TOO_MANY_LATE:
                continue
            at = late[-1].granted or 0.0
            if at - since > LONG and not excuses.explain(one.caller, since - patience, at, one.kind):
                yield Violation(
                    "turn",
                    f"{one.name}: {one.caller} waited for its {one.kind} while process {process} passed the "
                    f"lock on among its own callers for {at - since + patience:.2f} s",
                    at,
                )
                break


def overtaken(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    """Nobody may wait while many who came later get the lock: processes take turns, and callers in them."""
    asked = [attempt.asked for attempt in attempts]
    for place, attempt in enumerate(attempts):
        ended = attempt.answered
        if ended == math.inf or ended - attempt.asked < LONG or attempt.how not in {"", "timeout"}:
            continue
        later = attempts[place + 1 : bisect_left(asked, ended)]
        if attempt.of_several or len(later) <= MOST_BEFORE or _may_be_skipped(attempt, faults):
            continue
        first = [one for one in later if one.granted is not None and one.granted < ended and not one.depth]
        if len(first) > MOST_BEFORE:
            yield Violation(
                "overtaken",
                f"{attempt.name}: {attempt.caller} waited for {ended - attempt.asked:.2f} s for its "
                f"{attempt.kind}, and {len(first)} who asked later got theirs",
                ended,
            )


def _may_be_skipped(attempt: Attempt, faults: list[Fault]) -> bool:
    """Return whether the waiter did not respond, or its answers were swallowed. Then others may pass it."""
    return any(
        (fault.process == attempt.process or (fault.process is None and fault.skips))
        and fault.began < attempt.answered
        and attempt.asked < fault.ended
        for fault in faults
    )
