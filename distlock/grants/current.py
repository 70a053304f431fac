"""What the guards around the running code hold: `current_grant`, and how nested guards find each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from operator import attrgetter
from typing import TYPE_CHECKING
from weakref import WeakSet

from distlock.errors import NotHeld
from distlock.grants.grant import Grant
from distlock.owner import Owner, current_owner

if TYPE_CHECKING:
    from distlock.locks.namespace import Namespace


@dataclass(frozen=True, slots=True)
class CurrentGrant:
    """The grant of one guard around the running code."""

    #: The namespace of the grant's names. In another namespace, the same names are other locks.
    namespace: Namespace
    grant: Grant
    #: The thread or task that holds the grant. One that inherits the context does not inherit the lock.
    owner: Owner
    #: The database whose transaction is fenced with the grant; None: no fence.
    fenced_in: str | None = None
    #: None: the guard's call is around the running code. Else the request keeps the grant after that call.
    kept: KeptGuardLock | None = None
    #: Seconds after which the holder counts as hung.
    max_hold: float = math.inf

    @property
    def running(self) -> bool:
        """Whether the running code is inside a call that relies on the grant."""
        return self.kept is None or self.kept.entered > 0


@dataclass(eq=False)
class KeptGuardLock:
    """A lock that the request keeps after the call of its guard. Later guards on its names enter it again."""

    #: How many calls rely on the lock now.
    entered: int = field(default=0, init=False)

    @property
    def with_request(self) -> bool:
        """Whether the lock is released at the end of the request, and not at the end of a transaction."""
        return True

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *exc_info: object) -> None:
        self.entered -= 1


@dataclass(eq=False)
class KeepingRequest:
    """A request, and the grants that it keeps after the calls of their guards.

    The framework's subclass sets `request_around` when the request begins, and `closed` when it ends.
    """

    #: The thread or task that serves the request. There, the kept grants of all owners count as current,
    #: because an async view may have run in another thread.
    owner: Owner = field(default_factory=current_owner, init=False)
    #: The grants that a request around this one keeps.
    around: tuple[CurrentGrant, ...] = field(default=(), init=False)
    #: The grants that this request keeps or has kept.
    kept: list[CurrentGrant] = field(default_factory=list, init=False)
    #: Whether the request is over. Code that copied its context may still run, but can keep no grant in it.
    closed: bool = field(default=False, init=False)

    def unreleased(self) -> tuple[CurrentGrant, ...]:
        """Return the grants that this request and the one around it keep, and that are not released yet."""
        return tuple(one for one in (*self.around, *self.kept) if not one.grant.released)


#: The grants of the guards around the running code. The last one is the current grant.
guards_around: ContextVar[tuple[CurrentGrant, ...]] = ContextVar("distlock_current_grants", default=())
#: The request that the running code belongs to, if the framework's requests keep locks (Flask's do).
request_around: ContextVar[KeepingRequest | None] = ContextVar("distlock_keeping", default=None)


_asked_for: WeakSet[Grant] = WeakSet()

_RELEASED = attrgetter("grant.released")


def current_grant() -> Grant:
    """Return the `Grant` of the innermost guard around the running code: the decorator's, or the rule's.

    A guard whose names were all held already has no grant of its own: inside it, the outer guard's grant is
    returned. Of two stacked decorators with different aliases, the upper one's grant is returned. Raises
    `NotHeld` if no guard is around the code, and in threads and tasks that the guarded code has started.

    Example::

        @distributed_lock("product_<id>")
        def reduce_stock(request, id):
            distlock.current_grant().check()
            return HttpResponse("sold")
    """
    mine = current_grants()
    if not mine:
        raise NotHeld(
            "No guard is around the running code, so there is no current grant: call current_grant() inside "
            "a function under @distributed_lock, or use the grant that 'with locks.lock(...) as grant' gives."
        )
    _asked_for.add(mine[-1].grant)
    return mine[-1].grant


def was_asked_for(grant: Grant) -> bool:
    """Return whether guarded code got *grant* from `current_grant`, and may have passed its fence on."""
    return grant in _asked_for


def note_asked_for(grant: Grant) -> None:
    """Make `was_asked_for` true of *grant*, because it is true of a grant with the same fence."""
    _asked_for.add(grant)


def current_grants() -> tuple[CurrentGrant, ...]:
    """Return the grants that the request keeps, then those of the guards around the code, outermost first.

    Released grants are left out, and so are grants of other threads and tasks. But in the thread or task that
    serves the request, the kept grants of all owners are returned.
    """
    mine, request = guards_around.get(), request_around.get()
    kept = request.unreleased() if request is not None and (request.kept or request.around) else ()
    if not mine and not kept:
        return ()
    owner = current_owner()
    if request is not None and owner != request.owner:
        kept = tuple(one for one in kept if one.owner == owner)
    # A grant may have been released by a coroutine to which it was passed on, or after an interrupt.
    running = (one for one in mine if one.owner == owner and not one.grant.released)
    return (*kept, *running)


def inherited() -> tuple[CurrentGrant, ...]:
    """Return `current_grants`, and the grants around the code that started the running task or thread."""
    mine, request = guards_around.get(), request_around.get()
    kept = request.unreleased() if request is not None and (request.kept or request.around) else ()
    return (*kept, *filterfalse(_RELEASED, mine)) if mine or kept else ()


@contextmanager
def holding(mine: CurrentGrant, above: Sequence[CurrentGrant] = ()) -> Iterator[None]:
    """Make *mine* the current grant while the block runs.

    *above*: the grants of the guards that are stacked directly above, the highest first. If there are any,
    the highest one becomes the current grant instead.
    """
    around = guards_around.get()
    if around:
        around = tuple(one for one in around if one.owner == mine.owner)
    before = guards_around.set((*around, mine, *reversed(above)))
    try:
        yield
    finally:
        guards_around.reset(before)


def keep_together(stack: Sequence[CurrentGrant], mine: CurrentGrant) -> None:
    """Let the request keep all of *stack*, the highest first, for as long as it keeps *mine*, one of them."""
    if len(stack) > 1 and (request := request_around.get()) is not None:
        place, kept = next(
            (place, one.kept) for place, one in enumerate(request.kept) if one.grant is mine.grant
        )
        request.kept[place : place + 1] = [replace(one, kept=kept) for one in reversed(stack)]


@contextmanager
def passed_on(mine: tuple[CurrentGrant, ...]) -> Iterator[None]:
    """Make the running thread or task the owner of *mine* during the block.

    Bridges between sync and async code use this. The previous owner waits for the block.
    """
    owner = current_owner()
    before = guards_around.set(tuple(replace(one, owner=owner) for one in mine))
    try:
        yield
    finally:
        guards_around.reset(before)
