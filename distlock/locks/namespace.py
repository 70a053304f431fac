"""A namespace: the names under one prefix of one lock service. In it one name is one lock.

It counts the recursion of its re-entrant locks.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from weakref import WeakValueDictionary

from distlock.backends.inspectable import Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.engine.commands import Commands, Parker
from distlock.engine.process import forget_in_children
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant
from distlock.grants.joint import MultiGrant
from distlock.locks.latch_waits import LatchWaits
from distlock.modes import EXCLUSIVE, LOCK, PERMIT, Kind, Mode
from distlock.operate.typed import Typed
from distlock.owner import Owner
from distlock.terms import Terms


class Acquirer(Protocol):
    """Takes the names of a client's locks. A `Namespace` is the base; one of a framework wraps another.

    One that stands around another looks before the wait, waits with care, or gives a grant that does more at
    its end. Threads share it.
    """

    @property
    def namespace(self) -> Namespace:
        """Where the names are."""

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        """Take all of *names*, which are in the one order for everybody; None: not in time.

        *parker*: where the caller sleeps; it identifies the caller. *seconds*: the longest wait; 0: ask
        once. *terms*: how long they may be held, and what wants them. Raises `LockError`.
        """


#: Called with the names of a ``with`` block at its end, while they are held still. Gives what is raised after
#: their release, unless the block has raised something itself; None: nothing.
AtEnd = Callable[[tuple[str, ...]], Commands[LockError | None]]


class Client(Protocol):
    """The methods of a client, a `distlock.Locks`, that a lock calls."""

    acquirer: Acquirer
    namespace: Namespace
    #: The longest wait of locks that were told none, seconds; -1: no limit.
    timeout: float
    at_end: AtEnd | None


class Namespace(ABC):
    """The state that the clients of one namespace share; itself an `Acquirer`, with nothing around it.

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
    epoch = 1

    def __init__(self, prefix: str, terms: Terms) -> None:
        self.prefix = prefix
        self.terms = terms
        #: The recursion counts of reentrant locks.
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
        """Return the states of the latches *names*; None for each that does not exist."""
        return [None] * len(names)

    @abstractmethod
    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        """See `Acquirer`."""

    def refuse_upgrade(self, names: tuple[str, ...]) -> None:  # noqa: B027 - where nobody reads
        """Raise `ConfigurationError` if the caller reads one of *names*, and so can't write it."""

    def refuse_overload(self, names: Iterable[str], seconds: float) -> None:  # noqa: B027 - nobody waits
        """Raise `TooManyWaiters` if who would wait *seconds* for *names* is not admitted just now."""

    @abstractmethod
    def abandon(self, names: tuple[str, ...], parker: Parker, error: BaseException) -> None:
        """Leave nothing behind of the caller with *parker*, which *error* interrupted."""

    @abstractmethod
    def is_holder(self, name: str, owner: Owner) -> bool:
        """Whether *owner*, of this process, was granted *name*, as far as is known."""

    @abstractmethod
    def grants(self) -> list[Grant]:
        """Return the current grant of each name in this process, without asking the lock service."""

    @abstractmethod
    def locked(self, name: str) -> bool:
        """Whether anybody holds *name* just now, here or elsewhere. Asks the lock service."""

    @abstractmethod
    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        """See `distlock.operate.looking.InspectedNamespace`. Raises `ConfigurationError` if it shows none."""

    def known(self, name: str) -> tuple[KeyState | None, StatusRow | None]:
        """Return the latest view of *name*, and this process's own part, without asking the lock service."""
        return None, None

    @abstractmethod
    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        """Yield what all processes publish of the names that begin with *before*."""

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
        """Return the waiters for latches. Raises `ConfigurationError` if the lock service has none."""
        raise ConfigurationError("A latch needs a lock service, such as redis://, and here is none.")

    def examine(self) -> Iterator[Finding]:
        """Yield findings about the lock service: see `distlock.operate.doctor`."""
        return iter(())

    def unmade(self) -> Finding | None:
        """Return a warning if the first lock is still to make something in the lock service."""
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
    """The namespaces of all clients in this process."""
    # One step: threads make and drop clients meanwhile.
    return [one for known in _all.valuerefs() if (one := known()) is not None]


@dataclass(frozen=True, slots=True)
class Entered:
    """How often its owner is inside one name."""

    grant: Grant
    #: The names that were requested together with it.
    whole: Grant
    count: int = 1
    #: The same for a lock that was lost since, in a block further out.
    before: Entered | None = None

    @property
    def is_held(self) -> bool:
        return not self.grant.released and not self.grant.lost

    @property
    def is_written(self) -> bool:
        """It is held, and nobody else reads: it was not downgraded."""
        return self.is_held and self.grant.mode == EXCLUSIVE

    def unreleased(self) -> Entered | None:
        """This one, or the next one further out whose end is still to come."""
        one: Entered | None = self
        while one is not None and one.grant.released:
            one = one.before
        return one


def together(entered: list[Entered]) -> Grant:
    """One grant of all of them: that which was asked for, where it has no other name."""
    whole = entered[0].whole
    if len(whole.names) == len(entered) and all(one.whole is whole for one in entered):
        return whole
    return entered[0].grant if len(entered) == 1 else MultiGrant([one.grant for one in entered])


#: The recursion of one owner, by name. It is replaced, never changed, so that no interrupt finds it halfway.
Names = Mapping[str, Entered]

#: It belongs to the namespace: two objects of the same names are the same lock.
Inside = dict[Owner, Names]
