"""The nodes of a lock: what they are called, how they are ordered and numbered, what is known of ours.

A lock is a container node, and each of its contenders an ephemeral sequential child of it. The children are
named as Curator's ``InterProcessMutex`` names its own, ``_c_<who>-lock-<number>``, because Curator orders
whatever it finds by the text behind the last ``lock-``: both may stand in one line. Readers are called
``_c_<who>-rlock-<number>``, which Curator takes for contenders like its own. Those that want 2 of 5 permits
are called ``_c_<who>-2of5-plock-<number>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from distlock.backends.base import PERMIT, READ, Acquired, LockRequest
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.names import encode

if TYPE_CHECKING:
    from distlock.backends.zookeeper.taking import Taking
    from distlock.backends.zookeeper.watch import Watch

#: Between the chroot and the locks: the format version.
FOLDER = "distlock-1"
#: A node is worth this many numbers, for the grants that one hold passes on: 2 to this power.
SPAN_BITS = 10
#: They go into signed 64 bits of somebody's database.
_LAST_NUMBER = 2**63 - 1
#: ZooKeeper counts the children of a node in 31 bits, and then gives all of them the same number.
_LAST_SEQUENCE = 2**31 - 2**10

#: A contender that takes its turn as ours do: one of ours, or of Curator's ``InterProcessMutex``.
_CONTENDER = re.compile(r"_c_.+-(?:lock|rlock|\d+of\d+-plock)-([0-9]{10})", re.DOTALL)
_DIGITS = itemgetter(slice(-10, None))
#: A token, which begins with the process where the engine made it. Curator writes its own with dashes.
_OURS = re.compile(r"_c_([0-9a-f]{16})?[0-9a-f]{32}-(?:lock|rlock|\d+of\d+-plock)-\d{10}")
#: What a holder has behind the seconds in its node that has turned its lock into one of a reader.
READING = b" reading"

#: The net under a lost hint, seconds. Watches are reliable, but one before us may hang.
POLL = 1.0


@lru_cache(maxsize=4096)
def lock_path(base: str, key: str) -> str:
    """The node of the lock *key*: client data gets into it as text only."""
    return f"{base}/{encode(key)}"


def contender_prefix(request: LockRequest) -> str:
    """What the server appends the number to."""
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
    """What the name of each of its nodes begins with."""
    return f"_c_{token}-"


def sequence_of(name: str) -> int:
    """The number of a contender; -1 for what is none."""
    match = _CONTENDER.fullmatch(name)
    return int(match[1]) if match else -1


def next_sequence(stat: Any) -> int:
    """The number of the next child, by the state of the lock's node: how many it ever had.

    ``cversion`` counts those that came and those that went, in 32 bits.
    """
    came_and_went, there = int(stat.cversion), int(stat.numChildren)
    return ((came_and_went + there) & 0xFFFFFFFF) // 2


def is_ours(name: str) -> bool:
    """Whether this backend made it, here or elsewhere; else Curator."""
    return _OURS.fullmatch(name) is not None


def process_of(name: str) -> str:
    """Which process the contender *name* is of; "" if it does not say. Another program's keeps its name."""
    match = _OURS.fullmatch(name)
    return match[1] or "" if match else name


def in_line(names: Iterable[str]) -> list[str]:
    """Return the contenders among *names*, the first one first, without any other node."""
    return sorted(filter(_CONTENDER.fullmatch, names), key=_DIGITS)


def check_sequence(name: str) -> None:
    """Refuse a line that is about to lose its order."""
    if not 0 <= sequence_of(name) < _LAST_SEQUENCE:
        raise BackendUnavailable(
            "ZooKeeper cannot number any more contenders of this lock: there were two thousand million, and "
            "never a moment without one. Let nobody ask for it for a few seconds."
        )


def first_number_of(czxid: int, span: int) -> int:
    """The first number of a node: later nodes have larger ones, by at least *span*.

    *czxid* is the transaction that created the node: 32 bits that count within an epoch, and above them the
    epoch, which grows with each election of a leader. Signed 64 bits hold 2 million elections of it.
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
    """That of a reader: the last one of its node. One that was a writer before has given out the others."""
    span = 1 << SPAN_BITS
    return first_number_of(czxid, span) + span - 1


@dataclass(slots=True, eq=False)
class Node:
    """One of ours, in the line for one lock."""

    request: LockRequest
    #: The lock's node, and the name of ours below it.
    parent: str
    name: str
    #: The session that it lives and dies with.
    owner: int
    #: The transaction that made it.
    czxid: int
    #: When the engine last asked for it, or renewed it.
    seen: float
    #: It has the lock, and nobody may send it away any more.
    held: bool = False
    #: Those that were in line just before we came.
    earlier: Sequence[str] = ()
    #: Those before us that need not say any more that they have the lock; None before we wait.
    clear: set[str] | None = None
    #: Those that may have it, and seem to hang, and since when.
    suspects: dict[str, float] = field(default_factory=dict)
    #: What we watch, and the connection that we do it on; whether it has let us in.
    watch: Watch | None = None
    watched: int = 0
    called: bool = False
    #: The writer that reads by now, so that it keeps no readers out.
    opened: str = ""
    #: It is being taken for a waiter that has not asked yet.
    taking: Taking | None = None

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}"

    def lapsed(self, now: float) -> bool:
        """Nobody here has cared for it for so long that it has to go, although our session lives on."""
        life = self.request.ttl if self.held else max(self.request.ttl, 4 * POLL)
        return now > self.seen + life

    def hold(self, request: LockRequest, followed: bool = False, other_limit: int = 0) -> Acquired:
        """What *request* is answered, which may have another mode by now than it came with."""
        self.held = True
        if request.mode == READ:
            return Acquired(reading_number_of(self.czxid), request.ttl, followed)
        return Acquired(first_number_of(self.czxid, request.span), request.ttl, other_limit=other_limit)
