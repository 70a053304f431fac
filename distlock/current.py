"""What the guards around the running code hold: `current_grant`, and how nested guards find each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlock.errors import NotHeld
from distlock.grant import Grant
from distlock.owner import Owner, current_owner

if TYPE_CHECKING:
    from distlock.locks import Locks


@dataclass(frozen=True, slots=True)
class Held:
    """What one guard holds."""

    #: The `Locks` that granted it: one name means another lock on another service.
    client: Locks
    grant: Grant
    #: Threads and tasks that inherit the context did not inherit the lock.
    owner: Owner
    #: The database whose transaction is fenced with the grant.
    fence: str | None = None


_held: ContextVar[tuple[Held, ...]] = ContextVar("distlock_held", default=())


def current_grant() -> Grant:
    """The grant of the innermost guard around the running code: the decorator's, or the rule's.

    A guard whose names were all held already has no grant of its own: it is the outer one's. Raises `NotHeld`
    where no guard is around the code, and in threads and tasks that the guarded code started.
    """
    mine = held()
    if not mine:
        raise NotHeld(
            "No guard is around the running code, so there is no current grant: call current_grant() inside "
            "a function under @distributed_lock, or use the grant that 'with locks.lock(...) as grant' gives."
        )
    return mine[-1].grant


def held() -> tuple[Held, ...]:
    """What the guards around the running code hold, the outermost first."""
    mine = _held.get()
    if not mine:
        return mine
    owner = current_owner()
    return tuple(one for one in mine if one.owner == owner)


def inherited() -> tuple[Held, ...]:
    """`held`, and what still is held around the code that started the running task or thread."""
    return tuple(one for one in _held.get() if not one.grant.released)


@contextmanager
def holding(client: Locks, grant: Grant, fence: str | None = None) -> Iterator[None]:
    """A guard holds *grant* while the block runs."""
    token = _held.set((*held(), Held(client, grant, current_owner(), fence)))
    try:
        yield
    finally:
        _held.reset(token)


@contextmanager
def passed_on(mine: tuple[Held, ...]) -> Iterator[None]:
    """The block runs elsewhere for the owner of *mine*, who waits for it: a bridge between sync and async."""
    owner = current_owner()
    token = _held.set(tuple(replace(one, owner=owner) for one in mine))
    try:
        yield
    finally:
        _held.reset(token)
