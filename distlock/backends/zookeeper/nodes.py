"""The nodes of a lock: what they are called, how they are ordered and numbered, what is known of ours.

A lock is a container node, and each of its contenders an ephemeral sequential child of it. The children are
named as Curator's ``InterProcessMutex`` names its own, ``_c_<who>-lock-<number>``, because Curator orders
whatever it finds by the text behind the last ``lock-``: both may stand in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from distlock.backends.base import Ask, Held
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.names import encode

#: Between the chroot and the locks: the format version.
FOLDER = "distlock-1"
#: A node is worth this many numbers, for the grants that one hold passes on: 2 to this power.
SPAN_BITS = 10
#: They go into signed 64 bits of somebody's database.
_LAST_NUMBER = 2**63 - 1
#: ZooKeeper counts the children of a node in 31 bits, and then gives all of them the same number.
_LAST_SEQUENCE = 2**31 - 2**10

_CONTENDER = re.compile(r".*lock-(\d{10})", re.DOTALL)
#: A token, which begins with the process where the engine made it. Curator writes its own with dashes.
_OURS = re.compile(r"_c_([0-9a-f]{16})?[0-9a-f]{32}-lock-\d{10}")

#: The net under a lost hint, seconds. Watches are reliable, but one before us may hang.
POLL = 1.0


@lru_cache(maxsize=4096)
def lock_path(base: str, key: str) -> str:
    """The node of the lock *key*: client data gets into it as text only."""
    return f"{base}/{encode(key)}"


def contender_prefix(token: str) -> str:
    """What the server appends the number to."""
    return f"_c_{token}-lock-"


def sequence_of(name: str) -> int:
    """The number of a contender; -1 for what is none."""
    match = _CONTENDER.fullmatch(name)
    return int(match[1]) if match else -1


def is_ours(name: str) -> bool:
    """Whether this backend made it, here or elsewhere; else Curator."""
    return _OURS.fullmatch(name) is not None


def process_of(name: str) -> str:
    """Which process the contender *name* is of; "" if it does not say. Another program's keeps its name."""
    match = _OURS.fullmatch(name)
    return match[1] or "" if match else name


def in_line(names: Iterable[str]) -> list[str]:
    """The contenders among *names*, the first one first."""
    return sorted((name for name in names if sequence_of(name) >= 0), key=sequence_of)


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
            "of a leader the fences have come to an end. Move the locks to a new ensemble, and raise era."
        )
    return number


@dataclass(slots=True, eq=False)
class Node:
    """One of ours, in the line for one lock."""

    ask: Ask
    #: The lock's node, and the name of ours below it.
    parent: str
    name: str
    #: The session that it lives and dies with.
    owner: int
    #: The transaction that made it.
    czxid: int
    #: When the engine last asked for it, or renewed it.
    seen: float
    #: It is the first, and nobody may send it away any more.
    held: bool = False
    #: The node that was first when we came.
    first: str = ""
    #: The connection and the node that we watch; whether nobody else was before us; whether it is gone.
    watched: tuple[int, str] = (0, "")
    second: bool = False
    called: bool = False
    #: The node that seems to hang at the head of the line, and since when.
    suspect: str = ""
    suspect_since: float = 0.0

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}"

    def lapsed(self, now: float) -> bool:
        """Nobody here has cared for it for so long that it has to go, although our session lives on."""
        life = self.ask.ttl if self.held else max(self.ask.ttl, 4 * POLL)
        return now > self.seen + life

    def hold(self) -> Held:
        self.held = True
        return Held(first_number_of(self.czxid, self.ask.span), self.ask.ttl)
