"""Those in a line that have the lock, and those that keep another one out: a question of the names alone.

Nobody passes anybody, so those that have the lock are the first in line: one writer, or a run of readers, or
as many as there are permits for. One that may enter by the names may do so for ever, for its place in the
line only gets better. What the names don't tell is that a writer reads by now (`Line.downgrade`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What stands before the number of a node.
_KIND = slice(-17, -10)
_PERMITS = re.compile(r"-(\d+)of(\d+)-plock-")


def is_reader(name: str) -> bool:
    return name[_KIND] == "-rlock-"


def wants_permits(name: str) -> bool:
    return name[_KIND] == "-plock-"


def entered(names: Sequence[str], opened: str = "") -> int:
    """How many of the first in the line *names* have the lock, or are being handed it.

    *opened*: a writer that reads by now.
    """
    if not names:
        return 0
    if wants_permits(names[0]):
        return _with_permits(names)
    readers = 0
    while readers < len(names) and (is_reader(names[readers]) or names[readers] == opened):
        readers += 1
    return max(readers, 1)


def in_the_way(before: Sequence[str], name: str) -> Sequence[str]:
    """Those of *before*, who stand before *name* in the line, that keep it out. Nobody: it may enter."""
    if is_reader(name):
        return [one for one in before if not is_reader(one)]
    if wants_permits(name) and entered([*before, name]) > len(before):
        return ()
    return before


def silent(earlier: Sequence[str], before: Sequence[str]) -> set[str]:
    """Those of *before* that may have the lock and never said so: they could enter when they came.

    *before* is the line before one of ours, and *earlier* is how it was shortly before that came.
    """
    known = set(earlier)
    late = [name for name in before[: entered(before)] if name not in known]
    return {*earlier[: entered(earlier)], *late}


def followed(after: Sequence[str]) -> bool:
    """Whether *after* a reader that has the lock somebody waits."""
    return not all(map(is_reader, after))


def permits_of(names: Sequence[str]) -> tuple[int, int]:
    """How many permits *names* have together, and of how many, as the first of them says. 0: none."""
    found = [(int(match[1]), int(match[2])) for name in names if (match := _PERMITS.search(name))]
    return (sum(permits for permits, _ in found), found[0][1]) if found else (0, 0)


def other_limit(names: Sequence[str], limit: int) -> int:
    """Another limit than *limit* which one of *names* has; 0: none has."""
    named = (int(match[2]) for name in names if (match := _PERMITS.search(name)))
    return next((one for one in named if one != limit), 0)


def _with_permits(names: Sequence[str]) -> int:
    out = 0
    for place, name in enumerate(names):
        match = _PERMITS.search(name)
        if match is None:
            return place
        out += int(match[1])
        # Each knows how many there are, and they may differ: one that has to wait lets nobody pass.
        if out > int(match[2]):
            return place
    return len(names)
