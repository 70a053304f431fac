"""The judge of a soak. It uses no code of distlock: it knows only what the processes have noted.

A holder takes the time, then looks whether its lock is lost, and notes the time if it is not. So it had the
lock at that time. A hold lasts from the first such moment to the last one, whatever was done to the process
in between; two holds that overlap here did overlap.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.soak.excuses import Excuses
from tests.soak.linear import unexplained
from tests.soak.notes import Attempt, Fault, History, LatchCall, Request
from tests.soak.promises import Promises, Violation
from tests.soak.waiting import forgotten, overlong_turns, overtaken, waited_and_excused

#: For how many seconds a call to the lock service may go on before it fails: its time-out, and a bit.
LONGEST_CALL = 3.0
#: A caller with a shorter time-out, in seconds, may get no answer in time from a service that is well.
SHORT_TIME = 2.0
#: An error has one of these texts if no answer has come in time.
_NO_ANSWER = re.compile("no answer within|no answer in time|did not answer in time|opened no session within")
#: And one of these if there was no time to ask.
_NO_TIME = re.compile("no time was left|there was no time left to ask")
#: A call that lasts longer, in seconds, met a server that stood still for a moment.
STALL = 0.3
#: For how many seconds after a fault a lock may be lost.
LOST_AFTER = LONGEST_CALL
#: Within how many seconds a holder learns that its release is requested. A file's does so within two.
HEARD_WITHIN = 2.0


def judge(history: History, promises: Promises) -> list[Violation]:
    """Return the violations of *promises* in *history*, the earliest first."""
    faults = history.faults
    excuses = Excuses(faults, promises)
    found: list[Violation] = []
    for attempts in by_name(history):
        found += _overlaps(attempts, faults)
        found += _fences(attempts, faults)
        found += _reentries(attempts)
        found += forgotten(attempts, faults, promises.about(attempts[0].name))
        found += overtaken(attempts, faults)
        if promises.in_turns and attempts[0].kind != "permit":
            found += overlong_turns(attempts, excuses)
        found += _unavailable(attempts, excuses)
        found += _lost(attempts, excuses)
    found += _requests(history, excuses)
    found += _latches(history, excuses)
    found += [
        Violation("leak", f"process {leak.process} left {leak.what}", leak.at) for leak in history.leaks
    ]
    found += [Violation("leftover", said, math.inf) for said in history.leftovers]
    found += [Violation("error", said, math.inf) for said in history.errors]
    return sorted(found, key=lambda violation: violation.at)


def by_name(history: History) -> list[list[Attempt]]:
    """Return the attempts for each lock. The permits of a name are another lock than the name."""
    found: dict[tuple[str, bool], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        found[attempt.name, attempt.kind == "permit"].append(attempt)
    return list(found.values())


def excused_share(history: History, promises: Promises) -> tuple[float, float]:
    """Return for how many seconds callers waited, and for how many of them a free lock was excused."""
    both = [
        waited_and_excused(attempts, history.faults, promises.about(attempts[0].name))
        for attempts in by_name(history)
    ]
    return sum(waited for waited, _ in both), sum(excused for _, excused in both)


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which a caller certainly held a name. *reads*: it kept only writers out."""

    began: float
    ended: float
    reads: bool
    attempt: Attempt


def conflict(one: Hold, other: Hold) -> bool:
    """Return whether *one* and *other* must not be at the same time."""
    nested = one.attempt.depth or other.attempt.depth
    if nested and one.attempt.caller == other.attempt.caller:
        return False
    return not (one.reads and other.reads)


def _holds(attempts: list[Attempt]) -> list[Hold]:
    """Return the holds of *attempts*, the earliest first. A downgrade splits a hold into two."""
    holds: list[Hold] = []
    for attempt in attempts:
        if attempt.granted is None or attempt.lost_at_once:
            continue
        reads, began = attempt.kind == "read", attempt.granted
        if attempt.downgraded is not None and attempt.downgraded < attempt.sure:
            holds.append(Hold(began, attempt.downgraded, reads, attempt))
            reads, began = True, attempt.downgraded
        holds.append(Hold(began, attempt.sure, reads, attempt))
    return sorted(holds, key=lambda hold: hold.began)


def _overlaps(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    current: list[Hold] = []
    for hold in _holds(attempts):
        current = [one for one in current if one.ended > hold.began]
        attempt, earliest = hold.attempt, min((one.began for one in current), default=hold.began)
        if attempt.kind == "permit":
            inside = [one.attempt for one in [*current, hold]]
            out = sum(one.permits for one in inside)
            # Nobody knows which grant came last. It came after all others here had been asked for, and its
            # own limit must have allowed the sum.
            latest = max(one.asked for one in inside)
            limit = max(one.limit for one in inside if (one.granted or 0.0) >= latest)
            if out > limit:
                said = f"{attempt.name}: {out} permits of {limit} were out"
                yield Violation("permits", said, hold.began, _forgot(faults, earliest, hold.began))
        else:
            for one in current:
                if conflict(hold, one):
                    yield Violation(
                        "two at once",
                        f"{attempt.name}: {_shown(one)} and {_shown(hold)} "
                        f"for {min(one.ended, hold.ended) - hold.began:.4f} s",
                        hold.began,
                        _forgot(faults, one.attempt.granted or 0.0, hold.began),
                    )
        current.append(hold)


def _shown(hold: Hold) -> str:
    attempt = hold.attempt
    kind = "read after write" if attempt.downgraded is not None and hold.reads else attempt.kind
    return f"{attempt.caller} ({kind}, fence {attempt.fence})"


def _forgot(faults: list[Fault], since: float, until: float) -> bool:
    return any(fault.forgets and since <= fault.ended and fault.began <= until for fault in faults)


def _fences(attempts: list[Attempt], faults: list[Fault]) -> Iterator[Violation]:
    """A writer's fence is above all that were granted before it asked; a reader's is not below a writer's."""
    fenced = [one for one in attempts if one.granted is not None and one.fence and not one.depth]
    by_grant = sorted(fenced, key=lambda one: one.granted or 0.0)
    seen = 0
    largest: dict[bool, Attempt] = {}
    for one in fenced:
        while seen < len(by_grant) and (by_grant[seen].granted or 0.0) < one.asked:
            other = by_grant[seen]
            reads = other.kind == "read"
            if reads not in largest or (other.fence or ()) > (largest[reads].fence or ()):
                largest[reads] = other
            seen += 1
        for reads, before in largest.items():
            if one.kind == "read":
                # Among readers the numbers have no order.
                is_wrong = not reads and (one.fence or ()) < (before.fence or ())
            else:
                is_wrong = (one.fence or ()) <= (before.fence or ())
            if is_wrong:
                yield Violation(
                    "fences",
                    f"{one.name}: {one.caller} ({one.kind}) asked after {before.caller} ({before.kind}) had "
                    f"fence {before.fence}, and got {one.fence}",
                    one.granted or 0.0,
                    _forgot(faults, before.granted or 0.0, one.granted or 0.0),
                )


def _reentries(attempts: list[Attempt]) -> Iterator[Violation]:
    """An owner may enter again the lock that it holds: a time-out there is a violation."""
    around: dict[tuple[str, int], Attempt] = {}
    for attempt in attempts:
        around[attempt.caller, attempt.depth] = attempt
        if attempt.depth and attempt.refused is not None and attempt.how == "timeout":
            outer = around[attempt.caller, attempt.depth - 1]
            if outer.sure >= attempt.refused:
                said = f"{attempt.name}: {attempt.caller} has it, and was refused its {attempt.kind}"
                yield Violation("re-entrance", said, attempt.refused)


def _unavailable(attempts: list[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """A lock service is unavailable only during a fault."""
    for attempt in attempts:
        if attempt.how != "BackendUnavailable" or attempt.refused is None:
            continue
        if _had_little_time(attempt):
            continue
        # The call that failed may have begun before: all callers that wait get its error.
        called = attempt.refused - LONGEST_CALL
        if not excuses.explain(attempt.caller, called, attempt.refused, attempt.kind):
            said = f"{attempt.name}: {attempt.caller} got BackendUnavailable, and no fault explains it"
            yield Violation("unavailable", f"{said}: {attempt.why}", attempt.refused)


def _had_little_time(attempt: Attempt) -> bool:
    """Return whether the caller's own time-out was over before the lock service could answer its request.

    On a busy machine a server may take longer than a short time-out, and a process may not get to asking it.
    """
    assert attempt.refused is not None
    was_late = _NO_ANSWER.search(attempt.why) or _NO_TIME.search(attempt.why)
    return attempt.refused - attempt.asked < SHORT_TIME and bool(was_late)


def _lost(attempts: list[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """A lock is lost only after a fault. What began on the push is lost after a short pause, too."""
    for attempt in attempts:
        if attempt.lost and attempt.granted is not None and attempt.kind != "push":
            until = attempt.releasing if attempt.releasing is not None else attempt.sure
            if not excuses.explain(attempt.caller, attempt.granted, until, attempt.kind, LOST_AFTER):
                said = f"{attempt.name}: {attempt.caller} lost its {attempt.kind}, and no fault explains it"
                yield Violation("lost", said, until)


def _requests(history: History, excuses: Excuses) -> Iterator[Violation]:
    """A holder sees each release request in time, and none that nobody made.

    A caller that requests the release of a held lock never hears that it is free.
    """
    within = HEARD_WITHIN + excuses.promises.patience
    requests_by_name: dict[str, list[Request]] = defaultdict(list)
    for request in history.requests:
        requests_by_name[request.name].append(request)
    for attempt in history.attempts:
        if attempt.granted is None or attempt.name not in requests_by_name:
            continue
        requests = requests_by_name[attempt.name]
        if (seen := attempt.wanted) is not None and not any(
            request.began <= seen and request.ended >= attempt.asked for request in requests
        ):
            said = f"{attempt.name}: {attempt.caller} saw a request to release it, and nobody had made one"
            yield Violation("request", said, seen)
        for request in requests:
            if not (attempt.granted <= request.began and request.ended <= attempt.sure):
                continue
            forgot = _forgot(history.faults, attempt.granted, request.ended)
            if request.answer is False:
                said = f"{attempt.name}: {attempt.caller} held it, and who requested its release heard no"
                yield Violation("request", said, request.ended, forgot)
            until = request.ended + within
            unheard = until < attempt.sure if seen is None else until < seen
            if unheard and not excuses.explain(attempt.caller, request.began, until, attempt.kind):
                said = (
                    f"{attempt.name}: {attempt.caller} was not told within {within:g} s that its release "
                    "was requested"
                )
                yield Violation("request", said, until, forgot)


def _latches(history: History, excuses: Excuses) -> Iterator[Violation]:
    """There is an order of the calls of a latch in which each answer is right."""
    # If the connection that tasks share is given up, because one of them has got no answer in its time, the
    # calls of the others are repeated. To a task that waits in a queue, that is a time-out.
    given_up = [
        (one.process, one.refused)
        for one in history.attempts
        if one.refused is not None and "task" in one.caller
        if one.how == "timeout" or "did not answer in time" in one.why
    ]

    def is_disturbed(call: LatchCall) -> bool:
        if (
            excuses.promises.tasks_share
            and "task" in call.caller
            and call.ended - call.began > STALL
            and any(process == call.process and call.began <= at <= call.ended for process, at in given_up)
        ):
            return True
        return excuses.explain(call.caller, call.began, call.ended, "lock")

    for wrong, explained in unexplained(history.latches, is_disturbed):
        about = {"make": f" {wrong.total}", "count": f" {wrong.by} for {wrong.part}"}.get(wrong.what, "")
        yield Violation(
            "latch",
            f"{wrong.name}: {wrong.caller} called {wrong.what}{about}, and the answer {wrong.answer!r} can't "
            f"be right; {explained} calls before it can",
            wrong.ended,
            # A lock service that has lost its data has lost its latches, too.
            _forgot(excuses.faults, -math.inf, wrong.ended),
        )
