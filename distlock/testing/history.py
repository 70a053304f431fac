"""Check a history of grants: could a lock have granted them?

The fences give the order of the grants, so the check is exact and needs no search. Checks without fences, as
in https://jepsen.io/analyses, have to search for a possible order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distlock.terms import EXCLUSIVE, READ, Mode


@dataclass(frozen=True)
class HistoryRecord:
    """One acquisition. The times are of one clock that all processes share, in seconds."""

    name: str
    #: The caller: any text that tells callers apart.
    caller: str
    asked: float
    granted: float
    #: When the release began, or the lock was lost. None: it is held to the end of the history.
    released: float | None
    fence: tuple[int, int]
    #: Readers (``"read"``) may overlap, and share a fence.
    mode: Mode = EXCLUSIVE


def check_history(history: Iterable[HistoryRecord], *, disjoint: bool = True) -> list[str]:
    """Return a sentence for each fault of *history*; an empty list if there is none.

    Each writer has its own fence, larger than the fence of any grant before it asked. A reader's fence is
    equal to that of the latest writer before it asked, or larger. With *disjoint*, grants may not overlap in
    time, except those of readers, and a read within a write of the same caller. Pass False for runs in which
    faults take locks from their holders.
    """
    by_name: dict[str, list[HistoryRecord]] = defaultdict(list)
    for record in history:
        by_name[record.name].append(record)
    wrong: list[str] = []
    for records in by_name.values():
        wrong += _unique(records) + _growing(records)
        if disjoint:
            wrong += _disjoint(records)
    return wrong


def _unique(records: Sequence[HistoryRecord]) -> list[str]:
    seen: dict[tuple[int, int], HistoryRecord] = {}
    wrong = []
    for record in [one for one in records if one.mode != READ]:
        other = seen.setdefault(record.fence, record)
        if other is not record:
            wrong.append(f"{record.name}: {other.caller} and {record.caller} both have fence {record.fence}.")
    return wrong


def _growing(records: Sequence[HistoryRecord]) -> list[str]:
    by_grant = sorted(records, key=lambda record: record.granted)
    # The grants with the largest fence so far: of all grants, for the check of writers; and of writers, for
    # that of readers, because a reader may have a smaller fence than earlier readers.
    largest: HistoryRecord | None = None
    written: HistoryRecord | None = None
    before = 0
    wrong = []
    for record in sorted(records, key=lambda record: record.asked):
        while before < len(by_grant) and by_grant[before].granted < record.asked:
            one = by_grant[before]
            if largest is None or one.fence > largest.fence:
                largest = one
            if one.mode != READ and (written is None or one.fence > written.fence):
                written = one
            before += 1
        earlier = written if record.mode == READ else largest
        if earlier is None or earlier is record or record.fence > earlier.fence:
            continue
        if record.mode != READ or record.fence < earlier.fence:
            wrong.append(
                f"{record.name}: {record.caller} asked after {earlier.caller} had fence {earlier.fence}, "
                f"and got {record.fence}."
            )
    return wrong


def _disjoint(records: Sequence[HistoryRecord]) -> list[str]:
    wrong = []
    inside: list[HistoryRecord] = []
    for record in sorted(records, key=lambda record: record.granted):
        inside = [one for one in inside if record.granted < _end(one)]
        wrong += [
            f"{record.name}: {record.caller} was let in at {record.granted:.6f}, while {one.caller} was "
            f"inside since {one.granted:.6f}."
            for one in inside
            if READ not in (one.mode, record.mode)
            or (one.mode != record.mode and one.caller != record.caller)
        ]
        inside.append(record)
    return wrong


def _end(record: HistoryRecord) -> float:
    return math.inf if record.released is None else record.released
