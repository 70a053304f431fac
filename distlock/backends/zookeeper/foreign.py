"""A node in a line that no process has: made by hand, or copied. It never goes away by itself."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import Exists

from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.place import Place
from distlock.errors import BackendUnavailable

#: What the server calls the owner of a persistent node, and of a container.
_NOBODY = {0, -(2**63)}


def look_at(place: Place, name: str) -> Exists:
    """The question that `foreign` takes the answer to: what *name* is, in the line of *place*."""
    return Exists(f"{place.parent}/{name}", None)


def foreign(address: Address, place: Place, name: str, stat: Any) -> BackendUnavailable | None:
    """The error to raise if *name* belongs to no session. *stat*: what the server says of it."""
    if stat is None or isinstance(stat, KazooException) or stat.ephemeralOwner not in _NOBODY:
        return None
    path = f"{place.parent}/{name}"
    return BackendUnavailable(
        f"The lock {place.ask.key!r} can't be had: in its line at ZooKeeper {address.hosts} is a node that "
        "belongs to no session, so that nobody will ever release it. Something else than a lock made it (a "
        f"person, a copy of the nodes). Find out what, then delete it: zkCli.sh delete {path}"
    )
