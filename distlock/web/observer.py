"""Observers of a guard's lock: for signals, and for the ``Server-Timing`` header.

Every client gets the header, so it never contains the names of locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from distlock.clock import now
from distlock.errors import LockError
from distlock.grants.grant import Grant
from distlock.operate.looking import Party


class Observer(Protocol):
    """Observes one guard. Its methods must not raise: the error would take the place of the view's answer."""

    def acquired(self, grant: Grant, waited: float) -> None:
        """The lock was granted after *waited* seconds."""

    def contended(self, names: Sequence[str], holder: Party | None) -> None:
        """The guard has to wait. *holder*: the holder as far as this process knows; None: it knows none."""

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        """The lock was not granted, after *waited* seconds. *error* says why."""

    def released(self, grant: Grant, held: float) -> None:
        """The lock was released after *held* seconds; also if it had been lost before."""


Send = Callable[..., object]


class Signals:
    """An observer that sends signals about one call of a guard. *about*: arguments of every signal."""

    def __init__(self, acquired: Send, contended: Send, refused: Send, released: Send, **about: Any) -> None:
        self._acquired = acquired
        self._contended = contended
        self._refused = refused
        self._released = released
        self._about = about

    def acquired(self, grant: Grant, waited: float) -> None:
        self._acquired(names=grant.names, grant=grant, waited=waited, **self._about)

    def contended(self, names: Sequence[str], holder: Party | None) -> None:
        self._contended(names=tuple(names), holder=holder, **self._about)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        self._refused(names=tuple(names), error=error, waited=waited, **self._about)

    def released(self, grant: Grant, held: float) -> None:
        self._released(names=grant.names, grant=grant, held=held, **self._about)


class Watch:
    """Measures the times of one call of a guard, and notifies its observer."""

    def __init__(self, observer: Observer, names: Sequence[str]) -> None:
        self._observer = observer
        self._names = names
        self._asked = self._since = now()
        self._grant: Grant | None = None

    def contended(self, holder: Party | None) -> None:
        """Notify the observer that the guard has to wait: see `distlock.listening.OnContended`."""
        self._observer.contended(self._names, holder)

    def granted(self, grant: Grant) -> None:
        """Notify the observer of *grant*, unless its lock is a row, which `begun` reports."""
        if not grant.held_by_transaction:
            self._acquired(grant)

    def begun(self, grant: Grant) -> None:
        """Notify the observer of *grant* if its lock is a row, because its transaction has begun only now."""
        if self._grant is None:
            self._acquired(grant)

    def _acquired(self, grant: Grant) -> None:
        self._since = now()
        self._grant = grant
        self._observer.acquired(grant, self._since - self._asked)


@contextmanager
def watching(observer: Observer | None, names: Sequence[str]) -> Iterator[Watch | None]:
    """Notify *observer* if the lock is refused in the block, and of its release at the end of the block.

    Yield the `Watch` that the block has to call about a wait and the grant; None: there is no observer.
    """
    if observer is None:
        yield None
        return
    watch = Watch(observer, names)
    try:
        yield watch
    except LockError as error:
        if watch._grant is None:
            observer.refused(names, error, now() - watch._asked)
        raise
    finally:
        if watch._grant is not None:
            observer.released(watch._grant, now() - watch._since)


class _Together:
    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def acquired(self, grant: Grant, waited: float) -> None:
        for observer in self._observers:
            observer.acquired(grant, waited)

    def contended(self, names: Sequence[str], holder: Party | None) -> None:
        for observer in self._observers:
            observer.contended(names, holder)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        for observer in self._observers:
            observer.refused(names, error, waited)

    def released(self, grant: Grant, held: float) -> None:
        for observer in self._observers:
            observer.released(grant, held)


def together(*observers: Observer | None) -> Observer | None:
    """Return *observers* as one; None if there are none, so that a guard spends no time on them."""
    present = [observer for observer in observers if observer is not None]
    return _Together(present) if len(present) > 1 else next(iter(present), None)


HEADER = "Server-Timing"


class Stopwatch:
    """An observer that measures how many seconds one guard waited for its lock, and held it."""

    def __init__(self) -> None:
        self.waited: float | None = None
        self.held: float | None = None

    def acquired(self, grant: Grant, waited: float) -> None:
        self.waited = waited

    def contended(self, names: Sequence[str], holder: Party | None) -> None: ...

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        self.waited = waited

    def released(self, grant: Grant, held: float) -> None:
        self.held = held

    def header(self, existing: str = "") -> str:
        """Return *existing*, a value of ``Server-Timing``, with the measured times appended.

        Nothing is measured if an outer guard held all names already.
        """
        measured = (("lock-wait", self.waited), ("lock-held", self.held))
        said = [existing] if existing.strip() else []
        said += [f"{metric};dur={seconds * 1000:.1f}" for metric, seconds in measured if seconds is not None]
        return ", ".join(said)


class Headers(Protocol):
    """The headers of a response, in both frameworks."""

    def get(self, key: str, default: str, /) -> str: ...

    def __setitem__(self, key: str, value: str, /) -> None: ...


def add_header(stopwatches: Iterable[Stopwatch], headers: Headers) -> None:
    """Add the times of *stopwatches*, one for each guard of a request, to *headers*."""
    for stopwatch in stopwatches:
        if value := stopwatch.header(headers.get(HEADER, "")):
            headers[HEADER] = value
