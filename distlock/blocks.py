"""The ``with`` blocks around the running code: one on a name inside another on it would wait for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from distlock.current_grants import current_grants, inherited
from distlock.engine.steps import Gate
from distlock.errors import ConfigurationError, LockTimeout
from distlock.grant import Grant
from distlock.owner import Owner, current_owner

if TYPE_CHECKING:
    from distlock.lock import Lock
    from distlock.locks import Locks


@dataclass(slots=True, eq=False)
class Entry:
    """One caller's way into a lock: an ``acquire()``, or a ``with`` block."""

    lock: Lock
    owner: Owner
    #: It marks all that the engine does for this entry.
    gate: Gate
    #: What the lock's own books had of the owner before.
    before: Any = None
    grant: Grant | None = None
    #: Whose code has entered the block. A generator is another frame than the code that drives or closes it.
    frame: FrameType | None = None

    @property
    def is_open(self) -> bool:
        return self.grant is not None and not self.grant.released and not self.grant.lost


_PLAIN_WITH = (
    " This 'with' stopped the event loop, and so every task that may hold the lock: write 'async with'."
)

#: A contextvar, and not the thread's: pools that run parts of several calls in one thread keep their
#: contexts apart. Threads and tasks that inherit a context are other owners.
_around: ContextVar[tuple[Entry, ...]] = ContextVar("distlock_blocks", default=())


def begin(block: Entry) -> None:
    """The running code goes into *block*."""
    around = _around.get()
    _around.set((*(one for one in around if one.is_open), block) if around else (block,))


def ending(entered: Sequence[Entry], frame: FrameType) -> Entry | None:
    """Which of *entered*, the oldest first, the caller ends in *frame*.

    A ``with`` statement enters and ends its block in one frame, in whatever thread or task a generator is
    closed. Of other callers of `__enter__` and `__exit__`, as `ExitStack`, only the owner is known, and what
    is over goes first: the code of another block may still run under its lock.
    """
    for block in reversed(entered):
        if block.frame is frame:
            return block
    owner = current_owner()
    own = [block for block in reversed(entered) if block.owner == owner]
    some = own or entered
    return next((block for block in some if not block.is_open), next(iter(some), None))


def end(block: Entry) -> None:
    """It leaves *block*, perhaps in another context than it was entered in."""
    # A frame keeps alive what its code works with.
    block.frame = None
    if (around := _around.get()) == (block,):
        _around.set(())
    elif around:
        _around.set(tuple(one for one in around if one is not block and one.is_open))


@contextmanager
def apart() -> Iterator[None]:
    """The block is a request: what is around it is a site's test, which may play somebody else."""
    token = _around.set(())
    try:
        yield
    finally:
        _around.reset(token)


def refuse_own(lock: Lock, names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if the code around holds one of *names*, which *lock* would wait for."""
    if both := _of_guard(lock, names):
        raise ConfigurationError(
            f"The lock {both} is held by the guard around this very code, which would wait for itself: leave "
            "this lock out, for the guard holds it already."
        )
    if lock.of_guard or not lock._locks.keeps_out:
        # A site's test may hold the lock, and look how its guarded view answers in the same thread.
        return
    if not (around := _around.get()):
        return
    owner = current_owner()
    if both := _common(lock._locks, names, [one for one in around if one.owner == owner]):
        raise ConfigurationError(
            f"The lock {both} is held by a 'with' block around this very code, which would wait for itself: "
            f"leave the inner 'with' out, or write rlock({both}) twice, which lets its owner in again."
        )


def timed_out(lock: Lock, stopped_loop: bool) -> LockTimeout:
    """The error of a ``with`` that was not entered. *stopped_loop*: no task could run while it waited."""
    after = f"after {lock._default_timeout():g} seconds"
    if fault := own_fault(lock):
        said = f"The lock {lock._shown()} was still held {after}, {fault}"
    else:
        said = (
            f"The lock {lock._shown()} was still held by somebody else {after}. "
            "Try again later, or raise the time-out."
        )
    return LockTimeout(said + _PLAIN_WITH if stopped_loop else said)


def own_fault(lock: Lock) -> str | None:
    """How the running code itself keeps *lock* from being granted, as far as is known, and what to do."""
    names = lock.names
    if _of_guard(lock, names):
        return (
            "by the guard around this very code, which waits for itself: leave this lock out, for the "
            "guard holds it already."
        )
    owner = current_owner()
    around = _around.get()
    again = f"write rlock({', '.join(map(repr, names))}), which lets its owner in again."
    if _common(lock._locks, names, [one for one in around if one.owner == owner]):
        return f"by a 'with' block around this very code, which waits for itself: leave it out, or {again}"
    if any(lock._locks._holder(name) == owner for name in names):
        return f"by an acquire() of this very thread or task, which waits for itself: release it, or {again}"
    if is_held_around(lock._locks, names):
        return (
            "by the code that started this thread or task. If that waits for it, both wait for themselves: "
            "take the lock in one of them only."
        )
    return None


def is_held_around(client: Locks, names: Sequence[str]) -> bool:
    """Whether the running code, or what has started it, holds one of *names*, as far as is known."""
    owner = current_owner()
    return (
        any(client._holder(name) == owner for name in names)
        or bool(_common(client, names, _around.get()))
        or any(
            client.is_place_of(one.client) and not set(names).isdisjoint(one.grant.names)
            for one in inherited()
            if not one.grant.lost
        )
    )


def _of_guard(lock: Lock, names: Sequence[str]) -> str:
    """Those of *names* that a guard around the running code holds, as text."""
    for one in current_grants():
        if not one.running:
            continue  # It is kept for the next caller that asks for it.
        both = _shown(names, one.grant.names)
        if both and not (one.grant.released or one.grant.lost) and lock._locks.is_place_of(one.client):
            return both
    return ""


def _common(client: Locks, names: Sequence[str], blocks: Sequence[Entry]) -> str:
    """Those of *names* that one of *blocks* holds, as text."""
    for one in blocks:
        both = _shown(names, one.lock.names)
        if both and one.is_open and client.is_place_of(one.lock._locks):
            return both
    return ""


def _shown(names: Sequence[str], others: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names if name in others)
