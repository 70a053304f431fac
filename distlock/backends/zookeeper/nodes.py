"""The nodes of a lock: their names, their order, which of them have the lock, and their fences.

A lock is a container node, and each contender an ephemeral, numbered child of it. A writer's name has the
form of Curator's ``InterProcessMutex``, ``_c_<who>-lock-<number>``, so that both can share a queue: Curator
orders all children by the text behind the last ``lock-``. A reader is ``_c_<who>-rlock-<number>``, which
Curator takes for one of its own. A contender for 2 of 5 permits is ``_c_<who>-2of5-plock-<number>``.

No contender overtakes another, so the holders stand first in the queue: one writer, or all readers before the
first writer, or as many contenders as there are permits for. Once the names let a contender enter, that stays
so, because the contenders behind it change nothing. A writer that was downgraded keeps its name
(`Contenders.downgrade`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from distlock.backends.base import PERMIT, READ, LockRequest
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.names import encode

#: The folder of the locks, with the number of the format.
FOLDER = "distlock-1"
#: Each node reserves 2 to the power of this many fences, for the local hand-offs of its hold.
SPAN_BITS = 10
#: Databases store a fence as a signed integer of 64 bits.
_LAST_NUMBER = 2**63 - 1
#: ZooKeeper numbers the children of a node with 31 bits. All children after that get the same number.
_LAST_SEQUENCE = 2**31 - 2**10

#: A contender of distlock, or of Curator's ``InterProcessMutex``.
_CONTENDER = re.compile(r"_c_.+-(?:lock|rlock|\d+of\d+-plock)-([0-9]{10})", re.DOTALL)
_DIGITS = itemgetter(slice(-10, None))
#: A contender of distlock. The engine's tokens begin with the process id; Curator's ids have dashes.
_OURS = re.compile(r"_c_([0-9a-f]{16})?[0-9a-f]{32}-(?:lock|rlock|\d+of\d+-plock)-\d{10}")
#: Ends the data of a writer's node after a downgrade.
READING = b" reading"

#: Seconds between polls. Watches are reliable, but a contender before us may hang.
POLL = 1.0


@lru_cache(maxsize=4096)
def lock_path(base: str, key: str) -> str:
    """Return the path of the node of the lock *key*."""
    return f"{base}/{encode(key)}"


def contender_prefix(request: LockRequest) -> str:
    """Return the name of the contender without its number, which the server appends.

    Raises `ConfigurationError` for more permits than the limit.
    """
    if request.mode == READ:
        return f"{prefix_of(request.token)}rlock-"
    if request.mode == PERMIT:
        if request.permits > request.limit:
            raise ConfigurationError(
                f"{request.key!r} was asked for {request.permits} permits of {request.limit}, and can never "
                "get them. Ask for fewer, or raise the limit."
            )
        return f"{prefix_of(request.token)}{request.permits}of{request.limit}-plock-"
    return f"{prefix_of(request.token)}lock-"


def prefix_of(token: str) -> str:
    """Return how the names of the nodes of *token* begin."""
    return f"_c_{token}-"


def sequence_of(name: str) -> int:
    """Return the number of a contender, or -1 if *name* is none."""
    match = _CONTENDER.fullmatch(name)
    return int(match[1]) if match else -1


def next_sequence(stat: Any) -> int:
    """Return the number of the next child by *stat* of the lock's node.

    The number is how many children were ever created. ``cversion`` counts creations and deletions together,
    in 32 bits.
    """
    came_and_went, there = int(stat.cversion), int(stat.numChildren)
    return ((came_and_went + there) & 0xFFFFFFFF) // 2


def is_ours(name: str) -> bool:
    """Return whether distlock made the contender *name*. Otherwise Curator did."""
    return _OURS.fullmatch(name) is not None


def process_of(name: str) -> str:
    """Return the process id in *name*, or "" if it has none. For a contender of Curator, return *name*."""
    match = _OURS.fullmatch(name)
    return match[1] or "" if match else name


def in_order(names: Iterable[str]) -> list[str]:
    """Return the contenders among *names*, the first one first, without any other node."""
    return sorted(filter(_CONTENDER.fullmatch, names), key=_DIGITS)


def check_sequence(name: str) -> None:
    """Raise `BackendUnavailable` if the queue's numbers are about to overflow."""
    if not 0 <= sequence_of(name) < _LAST_SEQUENCE:
        raise BackendUnavailable(
            "ZooKeeper cannot number any more contenders of this lock: there were two thousand million, and "
            "never a moment without one. Let nobody ask for it for a few seconds."
        )


def first_number_of(czxid: int, span: int) -> int:
    """Return the first fence of a node. The first fences of later nodes are larger, by at least *span*.

    *czxid* is the transaction that created the node: its low 32 bits count within an epoch, and the bits
    above are the epoch, which grows with each election of a leader. 63 bits suffice for 2 million elections.
    """
    if span > 1 << SPAN_BITS:
        raise ConfigurationError(
            f"A hold cannot reserve {span} fences in ZooKeeper; at most {1 << SPAN_BITS}."
        )
    number = czxid << SPAN_BITS
    if number + span > _LAST_NUMBER:
        raise BackendUnavailable(
            f"ZooKeeper's transaction {czxid:#x} makes no fence of 63 bits: after 2 million elections "
            "of a leader the fences have come to an end. Move the locks to a new ensemble, and raise epoch."
        )
    return number


def reading_number_of(czxid: int) -> int:
    """Return a reader's fence: the last one of its node. A downgraded writer may have used the others."""
    span = 1 << SPAN_BITS
    return first_number_of(czxid, span) + span - 1


#: The part of a name that marks readers and permits: the text before the number.
_KIND = slice(-17, -10)
_PERMITS = re.compile(r"-(\d+)of(\d+)-plock-")


def is_reader(name: str) -> bool:
    return name[_KIND] == "-rlock-"


def wants_permits(name: str) -> bool:
    return name[_KIND] == "-plock-"


def entered(names: Sequence[str], downgraded: str = "") -> int:
    """Return how many of the first *names* of a queue have the lock, or are being handed it.

    *downgraded*: the first writer, if it was downgraded.
    """
    if not names:
        return 0
    if wants_permits(names[0]):
        return _with_permits(names)
    readers = 0
    while readers < len(names) and (is_reader(names[readers]) or names[readers] == downgraded):
        readers += 1
    return max(readers, 1)


def rivals_of(before: Sequence[str], name: str) -> Sequence[str]:
    """Return those of *before*, the contenders before *name*, that keep it out. If empty, it may enter."""
    if is_reader(name):
        return [one for one in before if not is_reader(one)]
    if wants_permits(name) and entered([*before, name]) > len(before):
        return ()
    return before


def silent(earlier: Sequence[str], before: Sequence[str]) -> set[str]:
    """Return those of *before* that may have the lock without an acknowledgement: they were first when made.

    *before* is the queue before one of our nodes. *earlier* is the queue that was read just before our node
    was made: nodes that were made in between are missing there.
    """
    known = set(earlier)
    late = [name for name in before[: entered(before)] if name not in known]
    return {*earlier[: entered(earlier)], *late}


def followed(after: Sequence[str]) -> bool:
    """Return whether one of *after*, the contenders behind a reader that has the lock, has to wait."""
    return not all(map(is_reader, after))


def permits_of(names: Sequence[str]) -> tuple[int, int]:
    """Return the sum of the permits of *names*, and the first limit; (0, 0) if none wants permits."""
    found = [(int(match[1]), int(match[2])) for name in names if (match := _PERMITS.search(name))]
    return (sum(permits for permits, _ in found), found[0][1]) if found else (0, 0)


def other_limit(names: Sequence[str], limit: int) -> int:
    """Return a limit of one of *names* that differs from *limit*; 0 if there is none."""
    named = (int(match[2]) for name in names if (match := _PERMITS.search(name)))
    return next((one for one in named if one != limit), 0)


def _with_permits(names: Sequence[str]) -> int:
    out = 0
    for place, name in enumerate(names):
        match = _PERMITS.search(name)
        if match is None:
            return place
        out += int(match[1])
        # Limits may differ. A contender that has to wait lets nobody pass.
        if out > int(match[2]):
            return place
    return len(names)
