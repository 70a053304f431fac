"""The first in line does not take the lock: its process was stopped, or is too busy to notice.

Its session lives on, so it would keep everybody waiting for as long as that does. A hand-over is worth a
window instead. Taking the lock changes the version of a node, and sending it away deletes that node only at
its first version: so exactly one of the two happens.
"""

from __future__ import annotations

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, Exists

from distlock import clock
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import is_ours
from distlock.backends.zookeeper.place import Place
from distlock.backends.zookeeper.session import Session


def send_away(session: Session, place: Place, head: str, window: float, deadline: Deadline) -> float | None:
    """See whether *head*, which was not first when *place* was taken, hangs for longer than *window* seconds.

    Returns when to look again, seconds; 0 if the line has moved; None if there is nothing to hold against it.
    """
    if not is_ours(head):
        return None
    path = f"{place.parent}/{head}"
    (stat,) = session.ask([Exists(path, None)], deadline)
    if stat is None:
        return 0.0
    if isinstance(stat, KazooException):
        raise unavailable(session.address, stat)
    if stat.version:
        return None
    now = clock.now()
    if place.suspect != head:
        place.suspect, place.suspect_since = head, now
    if (left := place.suspect_since + window - now) > 0:
        return left
    (answer,) = session.ask([Delete(path, 0)], deadline)
    if isinstance(answer, KazooException) and not isinstance(answer, NoNodeError | BadVersionError):
        raise unavailable(session.address, answer)
    return 0.0
