"""Taking the lock that one was handed: written to one's node, so that nobody may send it away any more."""

from __future__ import annotations

from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import GetChildren, SetData

from distlock import clock
from distlock.backends.zookeeper.answer import Answer
from distlock.backends.zookeeper.nodes import Node
from distlock.backends.zookeeper.wire import Wire

#: Seconds after which what was taken ahead is taken again. A hold lives from the moment that it is asked for,
#: and the session, which lives a little longer, from what it sent last.
_FRESH = 0.1


class Taking(NamedTuple):
    """Under way for a waiter that has not asked yet."""

    sent: float
    answers: list[Answer]

    def said(self) -> list[Any] | None:
        """What the server says to `to_take`; None if that has to be asked again."""
        if clock.now() > self.sent + _FRESH or not self.answers[-1].ready():
            return None
        said = []
        for answer in self.answers:
            try:
                said.append(answer.get())
            except (NoNodeError, BadVersionError) as error:
                said.append(error)
            except KazooException:
                return None
        return said


def to_take(node: Node, wire: Wire, look: bool = True) -> list[Any]:
    """The requests that take the lock for *node*, and tell who is in line if we are to *look*.

    If it turns out not to be first it was acknowledged too early. That costs nothing. Where the node has
    another version, it was written before: it has the lock, and what it says is wanted there.
    """
    requests = [SetData(node.path, wire.lifetime, 0)]
    if look:
        # Behind a write it is answered together with that, and wakes nobody else.
        requests.append(GetChildren(node.parent, None))
    return requests
