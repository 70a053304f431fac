"""The first node of a line, where it keeps everybody waiting.

It may be that of a process that was stopped, or is too busy to notice that it is first. Its session lives on,
so it would keep everybody waiting for as long as that does. A hand-over is worth a window instead. Taking the
lock changes the version of a node, and sending it away deletes that node only at its first version: so
exactly one of the two happens.

Or it is a node that no process has: made by hand, or copied. It never goes away by itself.
"""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, Exists

from distlock import clock
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import Node, is_ours
from distlock.backends.zookeeper.session import Session
from distlock.errors import BackendUnavailable

#: What the server calls the owner of a persistent node, and of a container.
_NOBODY = {0, -(2**63)}


def send_away(session: Session, node: Node, head: str, window: float, deadline: Deadline) -> float | None:
    """See whether *head*, which was not first when *node* was made, hangs for longer than *window* seconds.

    Returns when to look again, seconds; 0 if the line has moved; None if there is nothing to hold against it.
    """
    if not is_ours(head):
        return None
    path = f"{node.parent}/{head}"
    (stat,) = session.ask([Exists(path, None)], deadline)
    if stat is None:
        return 0.0
    if isinstance(stat, KazooException):
        raise unavailable(session.address, stat)
    if stat.version:
        return None
    now = clock.now()
    if node.suspect != head:
        node.suspect, node.suspect_since = head, now
    if (left := node.suspect_since + window - now) > 0:
        return left
    (answer,) = session.ask([Delete(path, 0)], deadline)
    if isinstance(answer, KazooException) and not isinstance(answer, NoNodeError | BadVersionError):
        raise unavailable(session.address, answer)
    return 0.0


def look_at(node: Node, name: str) -> Exists:
    """The question that `foreign` takes the answer to: what *name* is, in the line of *node*."""
    return Exists(f"{node.parent}/{name}", None)


def foreign(address: Address, node: Node, name: str, stat: Any) -> BackendUnavailable | None:
    """The error to raise if *name* belongs to no session. *stat*: what the server says of it."""
    if stat is None or isinstance(stat, KazooException) or stat.ephemeralOwner not in _NOBODY:
        return None
    path = f"{node.parent}/{name}"
    return BackendUnavailable(
        f"The lock {node.ask.key!r} can't be had: in its line at ZooKeeper {address.hosts} is a node that "
        "belongs to no session, so that nobody will ever release it. Something else than a lock made it (a "
        f"person, a copy of the nodes). Find out what, then delete it: zkCli.sh delete {path}"
    )
