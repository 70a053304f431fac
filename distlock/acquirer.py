"""Between a client and its lock service: what takes names, and what a framework adds to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from distlock.engine.steps import Gate, Steps
from distlock.errors import LockError
from distlock.grant import Grant
from distlock.terms import Terms

if TYPE_CHECKING:
    from distlock.namespace import Namespace


class Acquirer(Protocol):
    """Takes the names of a client's locks. A `Namespace` is the base; one of a framework wraps another.

    One that stands around another looks before the wait, waits with care, or gives a grant that does more at
    its end. Threads share it.
    """

    @property
    def namespace(self) -> Namespace:
        """Where the names are."""

    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        """Take all of *names*, which are in the one order for everybody; None: not in time.

        *gate*: where the caller sleeps, and what its waits are known by. *seconds*: the longest wait; 0: ask
        once. *terms*: how long they may be held, and what wants them. Raises `LockError`.
        """


#: Called with the names of a ``with`` block at its end, while they are held still. Gives what is raised after
#: their release, unless the block has raised something itself; None: nothing.
AtEnd = Callable[[tuple[str, ...]], Steps[LockError | None]]


class Client(Protocol):
    """What a lock asks of its client, which is a `distlock.Locks`."""

    acquirer: Acquirer
    namespace: Namespace
    #: The longest wait of locks that were told none, seconds; -1: no limit.
    timeout: float
    at_end: AtEnd | None
