"""A namespace: the names under one prefix of one lock service. In it one name is one lock."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self
from weakref import WeakValueDictionary

from distlock.backends.base import refuse_lacking
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Row, Seen, Sight
from distlock.backends.latches import Latches, LatchState
from distlock.engine.fork import forget_in_children
from distlock.engine.leading import LAST_WORDS
from distlock.engine.machine import Engine
from distlock.engine.name_grant import NameGrant
from distlock.engine.steps import Gate, Steps
from distlock.engine_sight import EngineSight
from distlock.errors import ConfigurationError
from distlock.grant import Grant
from distlock.inside import Inside
from distlock.latch_waits import LatchWaits
from distlock.modes import EXCLUSIVE, LATCH, LOCK, PERMIT, SEMAPHORE, Kind, Mode
from distlock.multi_grant import MultiGrant
from distlock.operate.typed import Typed
from distlock.owner import Owner
from distlock.terms import Terms


class Namespace(ABC):
    """What the clients of one namespace share. It is an `Acquirer` itself, the one that stands around none.

    *prefix*: what stands before every name. *terms*: those of locks that were told none.
    """

    #: Whether a lock keeps anybody out.
    keeps_out = True
    #: Whether somebody who has a name would wait for itself if it took it again.
    has_owners = True
    #: Whether there is a lock service that might not answer.
    may_be_away = True
    #: Equal for those in which one name is one lock, as far as is known; None: nothing is known of it.
    identity: object = None
    #: How an operator's command is called for it; None: no other process could see its locks.
    typed: Typed | None = None
    #: The first half of its fences.
    era = 1

    def __init__(self, prefix: str, terms: Terms) -> None:
        self.prefix = prefix
        self.terms = terms
        #: What the owners of re-entrant locks are inside of.
        self.inside: Inside = {}
        self._make_books()
        _all[id(self)] = self
        forget_in_children(self)

    def _make_books(self) -> None:
        #: For the books of `Lock` and `RLock`. Its thread may be interrupted by code that takes it, too.
        self.books = threading.RLock()

    @property
    def namespace(self) -> Self:
        return self

    def is_same(self, other: Namespace) -> bool:
        """Whether one name is one lock here and there. Two aliases may differ in their words only."""
        return self is other or (self.identity is not None and self.identity == other.identity)

    def refuse_lacking(self, capability: str, wish: str) -> None:  # noqa: B027 - nobody is kept out
        """Raise `ConfigurationError` unless its lock service can do it: see `distlock.backends.base`."""

    @property
    def semaphores(self) -> Namespace:
        """Where its semaphores have their names: they are no locks of these names."""
        return self

    def of(self, mode: Mode) -> Namespace:
        """Where names that are wanted in *mode* are names."""
        return self.semaphores if mode == PERMIT else self

    def of_kind(self, kind: Kind) -> Namespace | None:
        """Where the names of *kind* are; None: it has none."""
        return self if kind == LOCK else None

    def latch_states(self, names: Sequence[str]) -> Sequence[LatchState | None]:
        """Of the latches *names*. None: there is no such latch, or not any more."""
        return [None] * len(names)

    @abstractmethod
    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        """See `Acquirer`."""

    def refuse_upgrade(self, names: tuple[str, ...]) -> None:  # noqa: B027 - where nobody reads
        """Raise `ConfigurationError` if the caller reads one of *names*, and so can't write it."""

    @abstractmethod
    def forsake(self, names: tuple[str, ...], gate: Gate, error: BaseException) -> None:
        """Leave nothing behind of the caller with *gate*, which *error* interrupted."""

    @abstractmethod
    def is_holder(self, name: str, owner: Owner) -> bool:
        """Whether *owner*, of this process, was granted *name*, as far as is known."""

    @abstractmethod
    def grants(self) -> list[Grant]:
        """What is held in this process just now: the grant of each name. Asks nobody."""

    @abstractmethod
    def locked(self, name: str) -> bool:
        """Whether anybody holds *name* just now, here or elsewhere. Asks the lock service."""

    @abstractmethod
    def inspect(self, name: str) -> tuple[Sight, Row | None, str]:
        """See `distlock.operate.looking.Observed`. Raises `ConfigurationError` where nothing is shown."""

    def known(self, name: str) -> tuple[Sight | None, Row | None]:
        """What was seen of *name* last, and what this process has of it. Asks nobody."""
        return None, None

    @abstractmethod
    def announced(self, before: str) -> Iterator[tuple[str, Seen]]:
        """What all processes say of the names that begin with *before*."""

    @abstractmethod
    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        """End the hold of *name* whose block begins with *number*. False: it has ended.

        *transaction*: where the hold is one, what the database calls it.
        """

    def request_release(self, name: str) -> bool:
        """See `distlock.Locks.request_release`."""
        return False

    @property
    def latches(self) -> LatchWaits:
        """What waits for latches of this lock service. Raises `ConfigurationError` where it has none."""
        raise ConfigurationError("A latch needs a lock service, such as redis://, and here is none.")

    def examine(self) -> Iterator[Finding]:
        """What is worth knowing of the lock service: see `distlock.operate.doctor`."""
        return iter(())

    def unmade(self) -> Finding | None:
        """What to say of a lock service in which the first lock is still to make something; None: it has."""
        return None

    def prepare(self) -> str:
        """Make what its lock service needs before the first lock. Returns what there is, in a sentence."""
        return "Nothing has to be made: locks can be taken."

    def close(self) -> None:
        """Give everything back and drop threads and connections."""
        self.inside.clear()

    def after_fork(self) -> None:
        """In the child: what the parent holds stays the parent's."""
        self._make_books()
        self.inside.clear()


_all: WeakValueDictionary[int, Namespace] = WeakValueDictionary()


def namespaces() -> list[Namespace]:
    """Those of all clients in this process."""
    # One step: threads make and drop clients meanwhile.
    return [one for known in _all.valuerefs() if (one := known()) is not None]


class EngineNamespace(EngineSight, Namespace):
    """Names that *engine* gets from a lock service."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        super().__init__(prefix, engine.terms)
        self.engine = engine
        self.era = engine.era
        self._before = f"{prefix}:"
        self._latches: LatchWaits | None = None
        self._kind: Kind = LOCK
        self._others: dict[Kind, EngineNamespace] = {}

    def refuse_lacking(self, capability: str, wish: str) -> None:
        backend = self.engine.backend
        refuse_lacking(backend, backend.capabilities, capability, wish)

    @property
    def semaphores(self) -> Namespace:
        return self._of_kind(SEMAPHORE)

    def of_kind(self, kind: Kind) -> Namespace | None:
        has = self.engine.backend.capabilities
        there = {LOCK: True, SEMAPHORE: has.permits, LATCH: has.latch}[kind]
        return self._of_kind(kind) if there else None

    def _of_kind(self, kind: Kind) -> EngineNamespace:
        if kind == self._kind:
            return self
        if (found := self._others.get(kind)) is not None:
            return found
        # No prefix has a slash.
        made = EngineNamespace(self.engine, f"{self.prefix}/{kind}")
        made._kind, made.has_owners = kind, False
        # One step: threads that come together have the same one.
        return self._others.setdefault(kind, made)

    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        if terms.mode == PERMIT and self is not self.semaphores:
            return self.semaphores.acquire(names, gate, seconds, terms)
        if len(names) == 1:
            return self.engine.acquire(self._before + names[0], names[0], gate, seconds, terms)
        return self._acquire_all(names, gate, seconds, terms)

    def _acquire_all(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[MultiGrant | None]:
        if terms.mode == EXCLUSIVE:
            # Before any is waited for: behind the others the refusal of one would come late, or never.
            self.refuse_upgrade(names)
        now = self.engine.now
        deadline = now() + seconds
        grants: list[NameGrant] = []
        try:
            for name in names:
                left = max(0.0, deadline - now()) if seconds else 0.0
                if seconds and not left:
                    break
                grant = yield from self.engine.acquire(self._before + name, name, gate, left, terms)
                if grant is None:
                    break
                grants.append(grant)
            else:
                return MultiGrant(grants)
        except BaseException as error:
            for grant in reversed(grants):
                grant._let_go(error)
            raise
        yield from MultiGrant(grants)._release(deadline + LAST_WORDS if seconds else math.inf)
        return None

    def refuse_upgrade(self, names: tuple[str, ...]) -> None:
        self.engine.refuse_upgrade({self._before + name: name for name in names})

    def forsake(self, names: tuple[str, ...], gate: Gate, error: BaseException) -> None:
        self.engine.forsake([self._before + name for name in names], gate, error)
        if (semaphores := self._others.get(SEMAPHORE)) is not None:
            # Of a guard: what it had asked for is not told here.
            semaphores.forsake(names, gate, error)

    def is_holder(self, name: str, owner: Owner) -> bool:
        return self.engine.is_holder(self._before + name, owner)

    def grants(self) -> list[Grant]:
        return [grant for grant in self.engine.grants() if grant.domain == self.prefix]

    def locked(self, name: str) -> bool:
        return self.engine.locked(self._before + name)

    @property
    def latches(self) -> LatchWaits:
        if self._latches is None:
            backend = self.engine.backend
            self.refuse_lacking("latch", "latch()")
            assert isinstance(backend, Latches)
            with self.books:
                # Hints go to one of them.
                if self._latches is None:
                    waits = LatchWaits(backend, self.engine.announce_soon)
                    self.engine.sink.waits = self._latches = waits
                    self.engine.announcing.more = waits.rows
        return self._latches

    def close(self) -> None:
        if self._latches is not None:
            if self.engine.section.reentered():
                # The thread of the latches may wait for the mutex that this one has.
                threading.Thread(target=self.close, name="distlock-close").start()
                return
            self._latches.close()
        self.engine.close(super().close)
