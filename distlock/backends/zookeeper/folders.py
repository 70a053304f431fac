"""The nodes above the locks: made by the first that needs them, and kept."""

from __future__ import annotations

from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.protocol.serialization import Create2, Exists

from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.session import Session


def make_nodes(session: Session, path: str, deadline: Deadline) -> Exchanges[None]:
    """Make the nodes from the root down to *path*, those that are missing."""
    steps = path.strip("/").split("/")
    paths = ["/" + "/".join(steps[: number + 1]) for number in range(len(steps))]
    # Those that are there are not touched: we may have no right to make their like.
    stats = yield from session.asking([Exists(path, None) for path in paths], deadline)
    for path, stat in zip(paths, stats, strict=True):
        if stat is None:
            (stat,) = yield from session.asking([Create2(path, b"", session.wire.acl, 0)], deadline)
        if isinstance(stat, KazooException) and not isinstance(stat, NodeExistsError):
            raise unavailable(session.address, stat)
