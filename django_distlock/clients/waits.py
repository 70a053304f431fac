"""Which threads wait for which locks just now: so that no holder waits for one that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from distlock.engine.commands import Commands, Parker
from distlock.grants.grant import Grant
from distlock.locks.namespace import Acquirer, Namespace
from distlock.locks.self_deadlock import is_held_around
from distlock.terms import Terms
from django_distlock.clients.pooled import giving_back

# No mutex: everybody writes first and reads then, so that one of two at least sees the other.
_waits: dict[int, tuple[Namespace, Sequence[str]]] = {}
_watched: dict[Parker, int | None] = {}


class Waiting:
    """*inner*; but a thread that waits is known by what it waits for, and keeps no idle connection."""

    def __init__(self, inner: Acquirer, *, gives_back: bool = True) -> None:
        self.namespace = inner.namespace
        self._inner = inner
        self._gives_back = gives_back

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        if self._gives_back:
            parker = giving_back(parker)
        if parker.may_stall:
            # Tasks share a thread, which does not wait with them.
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        me = threading.get_ident()
        _waits[me] = self.namespace, names
        try:
            for watch, thread in tuple(_watched.items()):
                if thread in {None, me}:
                    watch.wake()
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        finally:
            _waits.pop(me, None)


@contextmanager
def watched(parker: Parker, thread: int | None = None) -> Iterator[None]:
    """*parker* is woken whenever *thread*, or any at all, begins to wait while the block runs."""
    _watched[parker] = thread
    try:
        yield
    finally:
        del _watched[parker]


def wait_for_us(
    threads: Sequence[int], namespace: Namespace | None = None, names: Sequence[str] = ()
) -> bool:
    """Whether one of *threads* waits for a lock that is held by the running code, or by what it runs in.

    *names* of *namespace* are held for certain: the code that ends them may run elsewhere.
    """
    for wanted, some in filter(None, map(_waits.get, threads)):
        if namespace is not None and wanted.is_same(namespace) and not set(names).isdisjoint(some):
            return True
        if is_held_around(wanted, some):
            return True
    return False
