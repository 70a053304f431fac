"""Whose turn it is: who in a line has the lock, or may take it at once.

One that wants the whole lock has to be the first. Readers have it together up to the first that is none.
Permits go to those that wait in the order of the line, as long as each finds room below its own limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from typing import Protocol, TypeVar

from distlock.backends.base import PERMIT, READ
from distlock.backends.file.entry import Wants


class _Stands(Protocol):
    """In a line."""

    @property
    def wants(self) -> Wants: ...
    @property
    def held(self) -> bool: ...


_S = TypeVar("_S", bound=_Stands)


def front(living: Iterable[_S]) -> Iterator[_S]:
    """Those of the *living* whose turn it is, first come first. It looks no further than it has to."""
    living = iter(living)
    first = next(living, None)
    if first is None:
        return
    if first.wants.mode == PERMIT:
        yield from _permitted([first, *living])
        return
    yield first
    if first.wants.mode == READ:
        yield from takewhile(lambda entry: entry.wants.mode == READ, living)


def is_front(last: _Stands, living: Iterable[_Stands]) -> bool:
    """Whether it is the turn of *last*, that stands behind the *living*."""
    return any(entry is last for entry in front(chain(living, (last,))))


def other_limit(mine: _Stands, line: Iterable[_Stands]) -> int:
    """Another limit than that of *mine* which somebody in *line* names; 0: nobody does."""
    if mine.wants.mode != PERMIT:
        return 0
    limits = (entry.wants.limit for entry in line if entry.wants.mode == PERMIT)
    return next((limit for limit in limits if limit != mine.wants.limit), 0)


def _permitted(line: list[_S]) -> Iterator[_S]:
    out = sum(entry.wants.permits for entry in line if entry.held)
    room = True
    for entry in line:
        if not entry.held:
            # Nobody passes one that waits, however little it wants itself.
            room = room and out + entry.wants.permits <= entry.wants.limit
            if not room:
                continue
            out += entry.wants.permits
        yield entry
