"""Judge a history of grants: was it that of a lock?

With fences the order of the grants is given, so the check is exact and needs no search
(https://jepsen.io/analyses for what is done without them).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One acquisition. The times are of one clock that all processes share, in seconds."""

    name: str
    #: Who: any text that tells callers apart.
    caller: str
    asked: float
    granted: float
    #: When its release was asked for, or the lock was lost. None: it holds to the end.
    released: float | None
    fence: tuple[int, int]


def check_history(history: Iterable[Record], *, disjoint: bool = True) -> list[str]:
    """Return what is wrong with *history*, one sentence each; an empty list if nothing is.

    Fences of one name are unique, and grow: a grant that was there before another was asked for has the
    smaller one. With *disjoint* no two grants overlap, which holds unless a fault took a lock from its
    holder: switch it off for runs with such faults.
    """
    by_name: dict[str, list[Record]] = defaultdict(list)
    for record in history:
        by_name[record.name].append(record)
    wrong: list[str] = []
    for records in by_name.values():
        wrong += _unique(records) + _growing(records)
        if disjoint:
            wrong += _disjoint(records)
    return wrong


def _unique(records: Sequence[Record]) -> list[str]:
    seen: dict[tuple[int, int], Record] = {}
    wrong = []
    for record in records:
        other = seen.setdefault(record.fence, record)
        if other is not record:
            wrong.append(f"{record.name}: {other.caller} and {record.caller} both have fence {record.fence}.")
    return wrong


def _growing(records: Sequence[Record]) -> list[str]:
    by_grant = sorted(records, key=lambda record: record.granted)
    largest: Record | None = None
    before = 0
    wrong = []
    for record in sorted(records, key=lambda record: record.asked):
        while before < len(by_grant) and by_grant[before].granted < record.asked:
            if largest is None or by_grant[before].fence > largest.fence:
                largest = by_grant[before]
            before += 1
        if largest is not None and record.fence <= largest.fence and record is not largest:
            wrong.append(
                f"{record.name}: {record.caller} asked after {largest.caller} had fence {largest.fence}, "
                f"and got {record.fence}."
            )
    return wrong


def _disjoint(records: Sequence[Record]) -> list[str]:
    wrong = []
    inside: Record | None = None
    for record in sorted(records, key=lambda record: record.granted):
        if inside is not None and record.granted < _end(inside):
            wrong.append(
                f"{record.name}: {record.caller} was let in at {record.granted:.6f}, while {inside.caller} "
                f"was inside since {inside.granted:.6f}."
            )
        if inside is None or _end(record) > _end(inside):
            inside = record
    return wrong


def _end(record: Record) -> float:
    return math.inf if record.released is None else record.released
