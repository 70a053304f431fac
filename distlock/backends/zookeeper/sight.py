"""A line, in the words of all lock services: see `distlock.backends.inspectable.Sight`."""

from __future__ import annotations

from distlock.backends.inspectable import MOST_SHOWN, Sight
from distlock.backends.zookeeper.announcements import Announcements
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.looking import Standing
from distlock.backends.zookeeper.nodes import process_of
from distlock.backends.zookeeper.sharing import permits_of


def sight(standing: Standing, announcements: Announcements, key: str, deadline: Deadline) -> Sight:
    """*standing*, with what the processes of the beginning say of *key*."""
    holding, waiting = standing.names[: standing.holders], standing.names[standing.holders :]
    first, last = holding[: 1 + MOST_SHOWN], waiting[:MOST_SHOWN]
    holder, *seen = announcements.of([process_of(name) for name in (*first, *last)], key, deadline)
    out, limit = permits_of(holding)
    return Sight(
        holder,
        standing.number,
        standing.lifetime,
        seen[len(first) - 1 :],
        len(waiting),
        mode=standing.mode,
        others=len(holding) - 1,
        beside=seen[: len(first) - 1],
        out=out,
        limit=limit,
    )
