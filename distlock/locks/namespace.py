"""A namespace: the names under one prefix of one lock service. In a namespace, one name is one lock."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self
from weakref import WeakValueDictionary

from distlock.backends.inspectable import Finding
from distlock.engine.process import forget_in_children
from distlock.engine.sans_io import Commands, Parker
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.latch_waits import LatchWaits
from distlock.operate.command_line import Typed
from distlock.operate.looking import InspectedNamespace
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, PERMIT, Mode, Terms

#: The commands of an acquisition. They return the grant, or None if the names stay taken.
Acquisition = Commands[Grant | None]


class Acquirer(Protocol):
    """Acquires the locks of a client. It is the client's `Namespace`, or an object that wraps the namespace.

    `distlock.connect` uses an `EngineNamespace`. A framework wraps it, for example to keep the grant with the
    request. Threads share it.
    """

    @property
    def namespace(self) -> Namespace:
        """The namespace to which the names belong."""

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        """Acquire all of *names*, in the order given, or none.

        *parker*: where the caller sleeps; it identifies the caller. *seconds*: the longest wait; 0: ask
        once. *terms*: the options of the locks. Raises `LockError`.
        """


class AcquirerWrapper:
    """Base class of acquirers that acquire by *inner*, and do more before or after that."""

    def __init__(self, inner: Acquirer) -> None:
        self.namespace = inner.namespace
        self._inner = inner


#: Called with the names of a ``with`` block at its end, while they are still held. Returns the error to raise
#: after their release, unless the block has raised one itself; None: no error.
AtEnd = Callable[[tuple[str, ...]], Commands[LockError | None]]


class Client(Protocol):
    """The attributes of `distlock.Locks` that its locks use."""

    acquirer: Acquirer
    namespace: Namespace
    #: The longest wait of locks without a timeout of their own, seconds; -1: no limit.
    timeout: float
    at_end: AtEnd | None


class Namespace(InspectedNamespace, ABC):
    """The names under *prefix*, and the state that its clients share.

    It is an `Acquirer` itself. *terms*: the options of locks that give none.
    """

    #: Whether its locks exclude anybody. Those of the backend ``dummy`` do not.
    keeps_out = True
    #: Whether a holder that asks for the same name again would wait for itself. False for semaphores and
    #: latches.
    has_owners = True
    #: Whether there is a lock service, which may be unavailable. False if the locks are rows of a database.
    may_be_unavailable = True
    #: Namespaces with equal identities have the same locks. None: it is not known.
    identity: object = None
    #: The command line with which an operator reaches its locks; None: other processes can't see them.
    typed: Typed | None = None

    def __init__(self, prefix: str, terms: Terms) -> None:
        self.prefix = prefix
        self.terms = terms
        #: The recursion counts of reentrant locks.
        self.entered_by_owner: EntriesByOwner = {}
        self._make_mutex()
        _all[id(self)] = self
        forget_in_children(self)

    def _make_mutex(self) -> None:
        #: The mutex of the entries of `Lock` and `RLock`. It is reentrant, because a signal handler may use
        #: locks, too.
        self.entries_mutex = threading.RLock()

    @property
    def namespace(self) -> Self:
        return self

    def is_same(self, other: Namespace) -> bool:
        """Return whether *other* has the same locks, as is possible with two aliases of one lock service."""
        return self is other or (self.identity is not None and self.identity == other.identity)

    def refuse_lacking(self, capability: str, wish: str) -> None:
        """Raise `ConfigurationError` unless its lock service has *capability*, a field of `Capabilities`.

        *wish*: the user's call that needs the capability, for the error.
        """

    @property
    def semaphores(self) -> Namespace:
        """The namespace of its semaphores: a semaphore and a lock of the same name are independent."""
        return self

    def of(self, mode: Mode) -> Namespace:
        """Return the namespace for locks of *mode*: that of its semaphores, or itself."""
        return self.semaphores if mode == PERMIT else self

    @abstractmethod
    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        """See `Acquirer`."""

    def refuse_upgrade(self, names: tuple[str, ...], owner: Owner) -> None:
        """Raise `ConfigurationError` if *owner* reads one of *names*, and so would wait for itself."""

    def refuse_overload(self, names: Iterable[str], seconds: float) -> None:
        """Raise `TooManyWaiters` if `acquire` would raise it now for *names* with a wait of *seconds*."""

    def abandon(self, names: tuple[str, ...], parker: Parker, error: BaseException) -> None:
        """Undo the acquisition of *names* by the caller with *parker*, which ended with *error*. No I/O."""

    def is_holder(self, name: str, owner: Owner) -> bool:
        """Return whether *owner*, a thread or task of this process, is known to hold *name*."""
        return False

    @abstractmethod
    def grants(self) -> list[Grant]:
        """Return the grants of this process that are neither released nor lost. Does no I/O."""

    def locked(self, name: str) -> bool:
        """Return whether anybody, in any process, holds *name*. Asks the lock service."""
        return False

    @property
    def latches(self) -> LatchWaits:
        """Return the waiters for latches. Raises `ConfigurationError` if the lock service has none."""
        raise ConfigurationError("A latch needs a lock service, such as redis://, and here is none.")

    def examine(self) -> Iterator[Finding]:
        """Yield findings about the lock service: see `distlock.cli.doctor`."""
        return iter(())

    def unmade(self) -> Finding | None:
        """Return a warning if the lock service lacks something that the first lock will make, else None."""
        return None

    def prepare(self) -> str:
        """Make what the lock service needs before the first lock. Return a sentence: what exists now."""
        return "Nothing has to be made: locks can be taken."

    def close(self) -> None:
        """Release everything, end the threads and close the connections."""
        self.entered_by_owner.clear()

    def after_fork(self) -> None:
        """Forget all locks in a forked child: what the parent holds stays the parent's."""
        self._make_mutex()
        self.entered_by_owner.clear()


#: The namespaces by id.
_all: WeakValueDictionary[int, Namespace] = WeakValueDictionary()


def namespaces() -> list[Namespace]:
    """Return the namespaces of all clients in this process."""
    # `valuerefs` is one step; other threads may make and drop clients.
    return [one for known in _all.valuerefs() if (one := known()) is not None]


@dataclass(frozen=True, slots=True)
class Entered:
    """One name of a re-entrant lock that its owner has acquired, and how often."""

    #: The grant of this name.
    grant: Grant
    #: The grant of all names that were acquired together with this name.
    whole: Grant
    count: int = 1
    #: The entry of an outer block for this name, whose lock was lost before the name was acquired again.
    before: Entered | None = None

    @property
    def is_held(self) -> bool:
        return not self.grant.released and not self.grant.lost

    @property
    def is_written(self) -> bool:
        """Whether the name is held, and was not downgraded to a read lock."""
        return self.is_held and self.grant.mode == EXCLUSIVE

    def unreleased(self) -> Entered | None:
        """Return the innermost entry whose grant is not released: this one or an outer one, else None."""
        one: Entered | None = self
        while one is not None and one.grant.released:
            one = one.before
        return one


def together(entered: list[Entered]) -> Grant:
    """Return one grant for all of *entered*: that of their acquisition, if it has no other name."""
    whole = entered[0].whole
    if len(whole.names) == len(entered) and all(one.whole is whole for one in entered):
        return whole
    return entered[0].grant if len(entered) == 1 else MultiGrant([one.grant for one in entered])


#: The entries of one owner, by name. It is replaced, never changed, so that no interrupt finds it halfway.
EntriesByName = Mapping[str, Entered]

#: The entries by owner. The namespace has them, because two lock objects of one name are the same lock.
EntriesByOwner = dict[Owner, EntriesByName]
