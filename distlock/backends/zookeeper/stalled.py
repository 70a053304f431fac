"""Who is first and does not take the lock: a process that was stopped, or is too busy to notice.

His session lives on, so he would keep everybody waiting for as long as it does. A hand-over is worth a
window instead. Taking the lock and being sent away are both transactions on the version of the lock's node,
so that only one of them can happen.
"""

from __future__ import annotations

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import CheckVersion, Delete, GetData, Transaction

from distlock import clock
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import is_ours
from distlock.backends.zookeeper.place import Place
from distlock.backends.zookeeper.session import Session


def send_away(session: Session, place: Place, head: str, window: float, deadline: float) -> float | None:
    """See whether *head*, who was not first when *place* was taken, hangs for longer than *window* seconds.

    Returns when to look again, seconds; 0 if he was sent away; None if there is nothing to hold against him.
    """
    if not is_ours(head):
        return None
    (answer,) = session.ask([GetData(place.parent, None)], deadline)
    if isinstance(answer, NoNodeError):
        return 0.0
    if isinstance(answer, KazooException):
        raise unavailable(session.address, answer)
    data, stat = answer
    if data == head.encode():
        return None
    now = clock.now()
    if place.suspect != (head, stat.version):
        place.suspect, place.suspect_since = (head, stat.version), now
        return window
    left = place.suspect_since + window - now
    if left > 0:
        return left
    place.suspect = ("", 0)
    session.ask(
        [Transaction([CheckVersion(place.parent, stat.version), Delete(f"{place.parent}/{head}", -1)])],
        deadline,
    )
    return 0.0
