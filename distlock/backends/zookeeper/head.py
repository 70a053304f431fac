"""The first nodes of a line, where they keep everybody waiting.

One may be that of a process that was stopped, or is too busy to notice that it is first. Its session lives
on, so it would keep everybody waiting for as long as that does. A hand-off is worth a window instead. Taking
the lock changes the version of a node, and sending it away deletes that node only at its first version: so
exactly one of the two happens.

Or it is a node that no process has: made by hand, or copied. It never goes away by itself.

Or it is a child that is no contender: a lock of another library on the same path, which does not wait for us.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, Exists

from distlock import clock
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import Node, in_line, is_ours
from distlock.backends.zookeeper.session import Session
from distlock.errors import BackendUnavailable, shown_as

#: What the server calls the owner of a persistent node, and of a container.
_NOBODY = {0, -(2**63)}


@shown_as(BackendUnavailable)
class Foreign(BackendUnavailable):
    """The lock's node has a child that is no contender, or one that will never leave the line."""


def send_away(
    session: Session, node: Node, names: Sequence[str], window: float, deadline: Deadline
) -> Exchanges[float | None]:
    """See whether one of *names*, to whom the lock was handed, hangs for longer than *window* seconds.

    Returns when to look again, seconds; 0 if the line has moved; None if nothing speaks against them.
    """
    assert node.clear is not None
    looks = [name for name in names if name not in node.clear and is_ours(name)]
    if not looks:
        return None
    now, pause, hanging = clock.now(), math.inf, []
    stats = yield from session.asking([look_at(node, name) for name in looks], deadline)
    for name, stat in zip(looks, stats, strict=True):
        if stat is None:
            pause = 0.0
        elif isinstance(stat, KazooException):
            raise unavailable(session.address, stat)
        elif stat.version:
            node.clear.add(name)
        elif (left := node.suspects.setdefault(name, now) + window - now) > 0:
            pause = min(pause, left)
        else:
            hanging.append(Delete(f"{node.parent}/{name}", 0))
    if hanging:
        answers = yield from session.asking(hanging, deadline)
        for answer in answers:
            if isinstance(answer, KazooException) and not isinstance(answer, NoNodeError | BadVersionError):
                raise unavailable(session.address, answer)
        return 0.0
    return None if pause == math.inf else pause


def look_at(node: Node, name: str) -> Exists:
    """The question that `refuse_foreign` takes the answer to: what *name* is, in the line of *node*."""
    return Exists(f"{node.parent}/{name}", None)


def refuse_foreign(address: Address, node: Node, name: str, stat: Any) -> None:
    """Raise `Foreign` if *name* belongs to no session. *stat*: what the server says of it."""
    if stat is None or isinstance(stat, KazooException) or stat.ephemeralOwner not in _NOBODY:
        return
    path = f"{node.parent}/{name}"
    raise Foreign(
        f"The lock {node.request.key!r} can't be had: in its line at ZooKeeper {address.hosts} is a node "
        "that belongs to no session, so that nobody will ever release it. Something else than a lock made it "
        f"(a person, a copy of the nodes). Find out what, then delete it: zkCli.sh delete {path}"
    )


def line_of(address: Address, key: str, parent: str, names: Sequence[str]) -> list[str]:
    """Return the contenders in *names*, all the children of the lock's node *parent*, the first one first.

    Raises:
        Foreign: A child is no contender. Its program doesn't wait for ours, so both would have the lock.
    """
    line = in_line(names)
    if len(line) < len(names):
        path = f"{parent}/{min(set(names).difference(line))}"
        raise Foreign(
            f"The lock {key!r} can't be had: its node at ZooKeeper {address.hosts} has a child that another "
            "program made, whose lock and distlock's don't exclude each other. Give that program a path of "
            f"its own. If nothing uses the child any more, delete it: zkCli.sh deleteall {path}"
        )
    return line
