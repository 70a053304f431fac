"""A namespace: the names under one prefix of one lock service. In it one name is one lock."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self
from weakref import WeakValueDictionary

from distlock.backends.inspectable import Finding
from distlock.engine.commands import Commands, Parker
from distlock.engine.process import forget_in_children
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.latch_waits import LatchWaits
from distlock.operate.looking import InspectedNamespace
from distlock.operate.typed import Typed
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, PERMIT, Mode, Terms

#: The commands of an acquisition. They return the grant, or None if it took too long.
Acquisition = Commands[Grant | None]


class Acquirer(Protocol):
    """Acquires the locks of a client. It is the client's `Namespace`, or an object that wraps the namespace.

    `distlock.connect` uses an `EngineNamespace`. A framework wraps it, for example to keep the grant with the
    request. Threads share it.
    """

    @property
    def namespace(self) -> Namespace:
        """The namespace of the names."""

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        """Acquire all of *names*, in the order given.

        *parker*: where the caller sleeps; it identifies the caller. *seconds*: the longest wait; 0: ask
        once. *terms*: the options of the locks. Raises `LockError`.
        """


class AcquirerWrapper:
    """*inner*, for clients that do more around an acquisition."""

    def __init__(self, inner: Acquirer) -> None:
        self.namespace = inner.namespace
        self._inner = inner


#: Called with the names of a ``with`` block at its end, while they are still held. Returns the error to raise
#: after their release, unless the block has raised one itself; None: no error.
AtEnd = Callable[[tuple[str, ...]], Commands[LockError | None]]


class Client(Protocol):
    """What a lock uses of its client, a `distlock.Locks`."""

    acquirer: Acquirer
    namespace: Namespace
    #: The longest wait of locks without a timeout of their own, seconds; -1: no limit.
    timeout: float
    at_end: AtEnd | None


class Namespace(InspectedNamespace, ABC):
    """The names under *prefix*, and the state that its clients share.

    It is the plain `Acquirer`. *terms*: the options of locks that give none.
    """

    #: Whether a lock excludes anybody. Dummy locks don't.
    keeps_out = True
    #: Whether a holder that asks for the same name again would wait for itself. Holders of permits don't.
    has_owners = True
    #: Whether there is a lock service, which may not answer.
    may_be_away = True
    #: Namespaces with equal identities have the same locks. None: it is not known.
    identity: object = None
    #: How an operator types a command for it; None: no other process can see its locks.
    typed: Typed | None = None

    def __init__(self, prefix: str, terms: Terms) -> None:
        self.prefix = prefix
        self.terms = terms
        #: The recursion counts of reentrant locks.
        self.inside: Inside = {}
        self._make_books()
        _all[id(self)] = self
        forget_in_children(self)

    def _make_books(self) -> None:
        #: Guards the entries of `Lock` and `RLock`. Reentrant, because a signal handler may use them, too.
        self.books = threading.RLock()

    @property
    def namespace(self) -> Self:
        return self

    def is_same(self, other: Namespace) -> bool:
        """Return whether *other* has the same locks, as two aliases of one lock service may."""
        return self is other or (self.identity is not None and self.identity == other.identity)

    def refuse_lacking(self, capability: str, wish: str) -> None:
        """Raise `ConfigurationError` unless its lock service can do it: see `distlock.backends.base`."""

    @property
    def semaphores(self) -> Namespace:
        """The namespace of its semaphores: a semaphore and a lock of one name are two things."""
        return self

    def of(self, mode: Mode) -> Namespace:
        """Return the namespace of names that are locked in *mode*."""
        return self.semaphores if mode == PERMIT else self

    @abstractmethod
    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        """See `Acquirer`."""

    def refuse_upgrade(self, names: tuple[str, ...], owner: Owner) -> None:
        """Raise `ConfigurationError` if *owner* reads one of *names*, and so can't write it."""

    def refuse_overload(self, names: Iterable[str], seconds: float) -> None:
        """Raise `TooManyWaiters` if a caller that would wait *seconds* for *names* would be refused now."""

    def abandon(self, names: tuple[str, ...], parker: Parker, error: BaseException) -> None:
        """Remove everything of the caller with *parker*, which *error* interrupted."""

    def is_holder(self, name: str, owner: Owner) -> bool:
        """Return whether *owner*, a thread or task of this process, is known to hold *name*."""
        return False

    @abstractmethod
    def grants(self) -> list[Grant]:
        """Return the current grant of each name in this process, without asking the lock service."""

    def locked(self, name: str) -> bool:
        """Return whether anybody, here or elsewhere, holds *name*. Asks the lock service."""
        return False

    @property
    def latches(self) -> LatchWaits:
        """Return the waiters for latches. Raises `ConfigurationError` if the lock service has none."""
        raise ConfigurationError("A latch needs a lock service, such as redis://, and here is none.")

    def examine(self) -> Iterator[Finding]:
        """Yield findings about the lock service: see `distlock.cli.doctor`."""
        return iter(())

    def unmade(self) -> Finding | None:
        """Return a warning if the first lock is still to make something in the lock service."""
        return None

    def prepare(self) -> str:
        """Make what its lock service needs before the first lock. Return what is there, in a sentence."""
        return "Nothing has to be made: locks can be taken."

    def close(self) -> None:
        """Release everything, end the threads and close the connections."""
        self.inside.clear()

    def after_fork(self) -> None:
        """Begin anew in a forked child: what the parent holds stays the parent's."""
        self._make_books()
        self.inside.clear()


_all: WeakValueDictionary[int, Namespace] = WeakValueDictionary()


def namespaces() -> list[Namespace]:
    """Return the namespaces of all clients in this process."""
    # `valuerefs` is one step; other threads may make and drop clients.
    return [one for known in _all.valuerefs() if (one := known()) is not None]


@dataclass(frozen=True, slots=True)
class Entered:
    """How often the owner of a re-entrant lock has acquired one name."""

    grant: Grant
    #: The grant of all names that were acquired together with it.
    whole: Grant
    count: int = 1
    #: The entry of an outer block, whose lock was lost before this one was acquired.
    before: Entered | None = None

    @property
    def is_held(self) -> bool:
        return not self.grant.released and not self.grant.lost

    @property
    def is_written(self) -> bool:
        """Whether it is held for writing, and was not downgraded."""
        return self.is_held and self.grant.mode == EXCLUSIVE

    def unreleased(self) -> Entered | None:
        """Return this entry, or the next one further out, whose grant is not released."""
        one: Entered | None = self
        while one is not None and one.grant.released:
            one = one.before
        return one


def together(entered: list[Entered]) -> Grant:
    """Return one grant for all of *entered*: if possible, the one with which they were acquired."""
    whole = entered[0].whole
    if len(whole.names) == len(entered) and all(one.whole is whole for one in entered):
        return whole
    return entered[0].grant if len(entered) == 1 else MultiGrant([one.grant for one in entered])


#: The entries of one owner, by name. It is replaced, never changed, so that no interrupt finds it halfway.
Names = Mapping[str, Entered]

#: The entries by owner. The namespace keeps them, because two lock objects of one name are the same lock.
Inside = dict[Owner, Names]
