"""What the nodes of a lock are called, in which order they stand, and which numbers they are worth.

A lock is a container node, and each of its contenders an ephemeral sequential child of it. The children are
named as Curator's ``InterProcessMutex`` names its own, ``_c_<who>-lock-<number>``, because Curator orders
whatever it finds by the text behind the last ``lock-``: both may stand in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

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
#: Curator writes its random part with dashes.
_OURS = re.compile(r"_c_[0-9a-f]{32}-lock-\d{10}")


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
