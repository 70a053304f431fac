"""Which threads wait for a lock just now, and for which: so that no holder waits for who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from distlock.current import inherited
from distlock.locks import Locks
from distlock.steps import Gate

# No mutex: everybody writes first and reads then, so that one of two at least sees the other.
_waits: dict[int, tuple[Locks, Sequence[str]]] = {}
_watched: dict[Gate, int] = {}


@contextmanager
def waiting(client: Locks, names: Sequence[str]) -> Iterator[None]:
    """This thread waits for *names* of *client* while the block runs."""
    me = threading.get_ident()
    _waits[me] = client, names
    try:
        for gate, thread in tuple(_watched.items()):
            if thread == me:
                gate.wake()
        yield
    finally:
        _waits.pop(me, None)


@contextmanager
def watched(thread: int, gate: Gate) -> Iterator[None]:
    """*gate* is woken whenever *thread* begins to wait while the block runs."""
    _watched[gate] = thread
    try:
        yield
    finally:
        del _watched[gate]


def waits_for_us(thread: int) -> bool:
    """Whether *thread* waits for a lock that a guard around the running code holds."""
    client, names = _waits.get(thread, (None, ()))
    return client is not None and any(
        client.is_place_of(one.client) and not set(one.grant.names).isdisjoint(names) for one in inherited()
    )
