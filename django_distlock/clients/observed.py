"""What an observer is told of locks in code, as guards tell theirs: for the debug toolbar.

Outside of a request that somebody watches an acquisition pays for one look at a variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from distlock.clock import now
from distlock.engine.commands import Commands, Parker
from distlock.errors import LockError, LockTimeout
from distlock.grants.grant import Grant, GrantWrapper
from distlock.locks.namespace import Acquirer, Namespace
from distlock.terms import Terms
from distlock.web.observer import Observer

#: Makes the observer of one acquisition; None: nobody watches the running request.
watching: ContextVar[Callable[[Namespace, Terms], Observer] | None] = ContextVar(
    "distlock_watching", default=None
)


class Observed:
    """*inner*, observed."""

    def __init__(self, inner: Acquirer) -> None:
        self.namespace = inner.namespace
        self._inner = inner

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        watch = watching.get()
        if watch is None:
            return self._inner.acquire(names, parker, seconds, terms)
        return self._observed(watch(self.namespace, terms), names, parker, seconds, terms)

    def _observed(
        self, observer: Observer, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        asked = now()
        try:
            grant = yield from self._inner.acquire(names, parker, seconds, terms)
        except LockError as error:
            observer.refused(names, error, now() - asked)
            raise
        if grant is None:
            observer.refused(names, LockTimeout("It stayed taken."), now() - asked)
            return None
        observer.acquired(grant, now() - asked)
        return ObservedGrant(grant, observer)


class ObservedGrant(GrantWrapper):
    """A grant whose end an observer is told."""

    __slots__ = ("_observer", "_since")

    def __init__(self, grant: Grant, observer: Observer) -> None:
        super().__init__(grant)
        self._observer: Observer | None = observer
        self._since = now()

    def __eq__(self, other: object) -> bool:
        # The signals tell of that of the lock service.
        return self._grant == (other._grant if isinstance(other, ObservedGrant) else other)

    def __hash__(self) -> int:
        return hash(self._grant)

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        return dict.fromkeys(parts, self) if len(parts) == 1 else parts

    def _release(self, until: float = math.inf) -> Commands[None]:
        try:
            yield from self._grant._release(until)
        finally:
            self._tell()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._tell()

    def _tell(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.released(self._grant, now() - self._since)
