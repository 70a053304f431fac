"""A namespace: the names under one prefix of one lock service. In it one name is one lock."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Self
from weakref import WeakValueDictionary

from distlock import reentrance
from distlock.backends.findings import Examinable, Finding, MadeByUse
from distlock.backends.inspectable import Row, Seen, Sight
from distlock.engine.fork import forget_in_children
from distlock.engine.leading import LAST_WORDS
from distlock.engine.machine import Engine
from distlock.engine.name_grant import NameGrant
from distlock.engine.steps import Gate, Steps
from distlock.grant import Grant
from distlock.inside import Inside
from distlock.multi_grant import MultiGrant
from distlock.operate.typed import Typed
from distlock.owner import Owner
from distlock.terms import Terms


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """What is equal for clients in which one name is one lock; of one text in all processes."""
    # A login says nothing of where that is, and an object has a text of its own in each process.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return url, backend, prefix, told, row


class Namespace(ABC):
    """What the clients of one namespace share. It is an `Acquirer` itself, the one that stands around none.

    *prefix*: what stands before every name. *terms*: those of locks that were told none.
    """

    #: Whether a lock keeps anybody out.
    keeps_out = True
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

    @abstractmethod
    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        """See `Acquirer`."""

    @abstractmethod
    def forsake(self, names: tuple[str, ...], gate: Gate, error: BaseException) -> None:
        """Leave nothing behind of the caller with *gate*, which *error* interrupted."""

    @abstractmethod
    def holder(self, name: str) -> Owner | None:
        """The owner in this process that was granted *name*, as far as is known."""

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

    def examine(self) -> Iterator[Finding]:
        """What is worth knowing of the lock service: see `distlock.operate.doctor`."""
        return iter(())

    def unmade(self) -> Finding | None:
        """What to say of a lock service in which the first lock is still to make something; None: it has."""
        return None

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


class EngineNamespace(Namespace):
    """Names that *engine* gets from a lock service."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        super().__init__(prefix, engine.terms)
        self.engine = engine
        self.era = engine.era
        self._before = f"{prefix}:"

    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        if len(names) == 1:
            return self.engine.acquire(self._before + names[0], names[0], gate, seconds, terms)
        return self._acquire_all(names, gate, seconds, terms)

    def _acquire_all(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[MultiGrant | None]:
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

    def forsake(self, names: tuple[str, ...], gate: Gate, error: BaseException) -> None:
        self.engine.forsake([self._before + name for name in names], gate, error)

    def holder(self, name: str) -> Owner | None:
        return self.engine.holder(self._before + name)

    def grants(self) -> list[Grant]:
        return [*self.engine.grants()]

    def locked(self, name: str) -> bool:
        return self.engine.locked(self._before + name)

    def inspect(self, name: str) -> tuple[Sight, Row | None, str]:
        key = self._before + name
        sight = self.engine.inspect(key)
        return sight, self.engine.row(key), self.engine.process

    def known(self, name: str) -> tuple[Sight | None, Row | None]:
        key = self._before + name
        return self.engine.seen(key), self.engine.row(key)

    def announced(self, before: str) -> Iterator[tuple[str, Seen]]:
        start = len(self._before)
        for seen in self.engine.announced(self._before + before):
            if seen.row is not None:
                yield seen.row.key[start:], seen

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        return self.engine.break_hold(self._before + name, number)

    def examine(self) -> Iterator[Finding]:
        backend = self.engine.backend
        if not isinstance(backend, Examinable):
            return iter(())
        found: list[Finding] = reentrance.call(list, backend.examine())
        return iter(found)

    def unmade(self) -> Finding | None:
        backend = self.engine.backend
        if not isinstance(backend, MadeByUse):
            return None
        missing: Finding | None = reentrance.call(backend.unmade)
        return missing

    def close(self) -> None:
        self.engine.close(super().close)
