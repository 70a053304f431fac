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
from itertools import groupby

from tests.soak.linear import unexplained
from tests.soak.notes import BEGINS, Attempt, Fault, History, LatchCall, Request

#: `_overtaken` looks at waits of at least LONG seconds, and lets at most MOST_BEFORE later callers be first.
LONG, MOST_BEFORE = 1.0, 300
#: From so many grants of one process in a row on, another process has waited for too long.
TOO_MANY_LATE = 3
#: The time-out of a call to the lock service, and a bit, seconds.
CALL = 3.0
#: For how many seconds after a fault a new call may still fail, and a lock be lost.
AFTER, LOST_AFTER = 1.0, CALL
#: Within how many seconds a holder learns that its release is requested. A file's does so within two.
HEARD = 2.0
#: The callers of a forked child, which is another process, and begins with the fault.
CHILD = "child"
#: The faults that strike only some callers of a process, and the word with which these callers' names begin.
OF_ONE_CALLER = {
    "cancelled tasks": "cancelled",
    "client closed": "closed",
    "client dropped": "dropped",
    "fork": CHILD,
    "interrupts": "interrupted",
}
#: The kinds of locks that a directory has, beside those of the lock service.
TWO = frozenset({"second", "multi"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. *admitted*: the documentation says that a loss of data may do this."""

    rule: str
    said: str
    at: float
    admitted: bool = False


def judge(
    history: History, ttl: float, patience: float, in_files: bool = False, in_turns: bool = True
) -> list[Violation]:
    """Return the violations of *history*, the earliest first.

    *ttl*: the lease of each lock, seconds. *patience*: how long a lock may be free while somebody waits.
    *in_files*: see `Excuses`. *in_turns*: whether processes have the lock in turns.
    """
    faults = history.faults
    excuses = Excuses(faults, in_files)
    found: list[Violation] = []
    by_name: dict[tuple[str, bool], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        by_name[attempt.name, attempt.kind == "permit"].append(attempt)
    for attempts in by_name.values():
        found += _overlaps(attempts, faults)
        found += _fences(attempts, faults)
        found += _reentries(attempts)
        found += _forgotten(attempts, faults, ttl, patience)
        found += _overtaken(attempts, faults)
        if in_turns and attempts[0].kind != "permit":
            found += _turns(attempts, excuses, patience)
        found += _unavailable(attempts, excuses)
        found += _lost(attempts, excuses)
    found += _requests(history, patience, excuses)
    found += _latches(history.latches, excuses)
    for process, left in history.left.items():
        found += [Violation("leak", f"process {process} left {what}", math.inf) for what in left]
    found += [Violation("leftover", said, math.inf) for said in history.leftovers]
    found += [Violation("error", said, math.inf) for said in history.errors]
    return sorted(found, key=lambda violation: violation.at)


@dataclass(frozen=True, slots=True)
class Excuses:
    """The faults that may be why calls fail.

    *in_files*: whether the lock service is a directory: a process that stands still may be writing to a file,
    and others wait for its end.
    """

    faults: list[Fault]
    in_files: bool

    def explain(
        self, caller: str, began: float, ended: float, in_files: bool = False, after: float = AFTER
    ) -> bool:
        """Return whether a fault may be why *caller* failed from *began* to *ended*, or *after* it."""
        return any(
            self._may_strike(fault, caller, in_files)
            and fault.began <= ended
            and began <= fault.ended + after
            for fault in self.faults
        )

    def _may_strike(self, fault: Fault, caller: str, in_files: bool) -> bool:
        if fault.process is None or (fault.what == "SIGSTOP" and (in_files or self.in_files)):
            return True
        process, _, word = caller.partition("/")
        if word == CHILD and fault.what == "fork":
            return True
        return process == str(fault.process) and word.startswith(OF_ONE_CALLER.get(fault.what, ""))


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
        if attempt.granted is None or (attempt.lost and attempt.sure == attempt.granted):
            # It was lost already when its process, which may have stood still, could note it.
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
        # The call that failed may have begun before: all callers that wait get its error.
        called = attempt.refused - CALL
        if not excuses.explain(attempt.caller, called, attempt.refused, attempt.kind in TWO):
            said = f"{attempt.name}: {attempt.caller} got BackendUnavailable, and no fault explains it"
            yield Violation("unavailable", said, attempt.refused)


def _lost(attempts: list[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """A lock is lost only after a fault. What began on the push is lost after a short pause, too."""
    for attempt in attempts:
        if attempt.lost and attempt.granted is not None and attempt.kind != "push":
            until = attempt.releasing if attempt.releasing is not None else attempt.sure
            in_files = attempt.kind in TWO
            if not excuses.explain(attempt.caller, attempt.granted, until, in_files, LOST_AFTER):
                said = f"{attempt.name}: {attempt.caller} lost its {attempt.kind}, and no fault explains it"
                yield Violation("lost", said, until)


def _forgotten(
    attempts: list[Attempt], faults: list[Fault], ttl: float, patience: float
) -> Iterator[Violation]:
    """Nobody may wait while the lock is free for *patience* seconds, or be refused after these."""
    gaps = list(_gaps(sorted(_taken(attempts, faults, ttl)), patience, attempts[0].asked))
    alone = [attempt for attempt in attempts if not attempt.of_several and not attempt.depth]
    asked_by_grant = {attempt.granted: attempt.asked for attempt in alone}
    for began, until in gaps:
        # When somebody wanted the lock for the first time in this gap.
        wanted = min((max(began, one.asked) for one in alone if _ended(one) > began), default=until)
        # The attempt that had it next may have come first.
        next_asked = math.inf if until == math.inf else asked_by_grant.get(until, -math.inf)
        for attempt in alone:
            ended = _ended(attempt)
            if attempt.how not in {"", "timeout"} or ended == math.inf:
                continue
            free = min(until, ended) - max(began, attempt.asked)
            if free > patience:
                yield Violation(
                    "forgotten",
                    f"{attempt.name}: {attempt.caller} waited for {ended - attempt.asked:.2f} s for its "
                    f"{attempt.kind}, {free:.2f} s of them while nobody had it",
                    max(began, attempt.asked),
                )
            elif wanted + patience < attempt.asked and attempt.how and ended < min(until, next_asked):
                yield Violation(
                    "refused",
                    f"{attempt.name}: {attempt.caller} was refused its {attempt.kind} after "
                    f"{ended - attempt.asked:.2f} s, when nobody had had it for {ended - began:.2f} s",
                    ended,
                )


def _turns(attempts: list[Attempt], excuses: Excuses, patience: float) -> Iterator[Violation]:
    """While another process waits, a process hands the lock to its own callers only briefly."""
    grants = [one for one in attempts if one.granted is not None and not one.depth]
    grants.sort(key=lambda one: one.granted or 0.0)
    # A wait without an end is that of a process that was killed.
    waits = [one for one in attempts if not one.of_several and patience < _ended(one) - one.asked < math.inf]
    for process, turn in groupby(grants, key=lambda one: one.process):
        first, *others = turn
        for one in waits if others else ():
            # Until then it may have been the turn of requests that came earlier.
            since = max(first.granted or 0.0, one.asked) + patience
            late = [grant for grant in others if since < (grant.granted or 0.0) < _ended(one)]
            late = [grant for grant in late if grant.asked > one.asked]
            if one.process == process or len(late) < TOO_MANY_LATE:
                continue
            at = late[-1].granted or 0.0
            if at - since > LONG and not excuses.explain(one.caller, since - patience - CALL, at):
                yield Violation(
                    "turn",
                    f"{one.name}: {one.caller} waited for its {one.kind} while process {process} passed the "
                    f"lock on among its own callers for {at - since + patience:.2f} s",
                    at,
                )
                break


def _ended(attempt: Attempt) -> float:
    """Return when *attempt* was granted or refused; ``inf``: neither is known."""
    ended = attempt.granted if attempt.granted is not None else attempt.refused
    return math.inf if ended is None else ended


def _gaps(taken: list[tuple[float, float]], longest: float, covered: float) -> Iterator[tuple[float, float]]:
    """Yield the times longer than *longest*, after *covered*, that no interval of *taken* covers."""
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
        if attempt.of_several or any(
            (fault.process == attempt.process or (fault.process is None and fault.skips))
            and fault.began < ended
            and attempt.asked < fault.ended
            for fault in faults
        ):
            # A waiter that does not respond, or whose answers are swallowed, is skipped.
            continue
        later = attempts[place + 1 : bisect_left(asked, ended)]
        first = [one for one in later if one.granted is not None and one.granted < ended and not one.depth]
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
    when it goes on. A caller that waits for several names may have this one while it waits for the others.
    """
    for attempt in attempts:
        if attempt.of_several and attempt.granted is None:
            yield attempt.asked, attempt.refused or math.inf
        if attempt.granted is not None:
            clean = attempt.released is not None and not attempt.lost
            yield (
                attempt.asked if attempt.of_several else attempt.granted,
                attempt.released if clean and attempt.released else attempt.sure + 1.5 * ttl,
            )
    of_process: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        of_process[attempt.process].append(attempt)
    for fault in faults:
        if fault.process is None:
            yield fault.began, fault.ended
        elif any(_is_open(attempt, fault) for attempt in of_process[fault.process]) and fault.what != BEGINS:
            yield fault.began, fault.ended + (1.5 * ttl if fault.what == "SIGKILL" else 0.0)


def _is_open(attempt: Attempt, fault: Fault) -> bool:
    """Return whether *attempt*, of the process that *fault* struck, had no answer by then, and was struck."""
    word = attempt.caller.partition("/")[2]
    is_struck = word.startswith(OF_ONE_CALLER.get(fault.what, ""))
    return is_struck and attempt.asked <= fault.ended and _ended(attempt) >= fault.began


def _requests(history: History, patience: float, excuses: Excuses) -> Iterator[Violation]:
    """A holder sees each release request in time, and none that nobody made.

    A caller that requests the release of a held lock never hears that it is free.
    """
    by_name: dict[str, list[Request]] = defaultdict(list)
    for request in history.requests:
        by_name[request.name].append(request)
    for attempt in history.attempts:
        if attempt.granted is None or attempt.name not in by_name:
            continue
        requests = by_name[attempt.name]
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
            until = request.ended + HEARD + patience
            unheard = until < attempt.sure if seen is None else until < seen
            if unheard and not excuses.explain(attempt.caller, request.began, until):
                said = (
                    f"{attempt.name}: {attempt.caller} was not told within {HEARD + patience:g} s that its "
                    "release was requested"
                )
                yield Violation("request", said, until, forgot)


def _latches(calls: list[LatchCall], excuses: Excuses) -> Iterator[Violation]:
    """There is an order of the calls of a latch in which each answer is right."""

    def is_disturbed(call: LatchCall) -> bool:
        return excuses.explain(call.caller, call.began, call.ended)

    for wrong, explained in unexplained(calls, is_disturbed):
        about = {"make": f" {wrong.total}", "count": f" {wrong.by} for {wrong.part}"}.get(wrong.what, "")
        yield Violation(
            "latch",
            f"{wrong.name}: {wrong.caller} called {wrong.what}{about}, and the answer {wrong.answer!r} can't "
            f"be right; {explained} calls before it can",
            wrong.ended,
            # A lock service that has lost its data has lost its latches, too.
            _forgot(excuses.faults, -math.inf, wrong.ended),
        )
