"""Self-deadlock: code asks for a lock that it holds itself, or that is held by code which waits for it.

To find that, the module keeps the ``with`` blocks around the running code.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from threading import Lock, get_ident
from types import CellType, CoroutineType, FrameType
from typing import Any

from distlock.engine.sans_io import Parker
from distlock.engine.wait_queues import upgrade_refusal
from distlock.errors import ConfigurationError, LockTimeout
from distlock.grants.current import CurrentGrant, current_grants, guards_around, inherited, request_around
from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace
from distlock.operate.command_line import URL
from distlock.operate.looking import known_holder
from distlock.owner import Owner, current_owner
from distlock.terms import READ


@dataclass(slots=True, eq=False)
class Entry:
    """One ``acquire()`` of a lock, or one ``with`` block on it."""

    namespace: Namespace
    names: tuple[str, ...]
    #: The caller's parker, by which the engine knows the entry.
    parker: Parker
    #: For an `RLock`: the entries of its owner (`namespace.EntriesByName`) when this acquisition began, or
    #: later its release.
    names_before: Any = None
    grant: Grant | None = None
    #: The frame whose code entered the block. A generator has another frame than the code that drives it.
    frame: FrameType | None = None
    #: The error that `AtEnd` returned. It is raised unless the body of the block has raised one.
    trouble: Exception | None = None

    @property
    def owner(self) -> Owner:
        return self.parker.owner

    @property
    def reads(self) -> bool:
        """Whether its grant is that of a read lock."""
        return self.grant is not None and self.grant.mode == READ

    @property
    def is_open(self) -> bool:
        return self.grant is not None and not self.grant.released and not self.grant.lost


#: `awaits_this` waits for the event loop of a task this many seconds, and at most this share of the caller's
#: time-out.
_PATIENCE = 1.0
_SHARE = 0.1

#: A mark by which `awaits_this` recognises the context of the running thread.
_here: ContextVar[object] = ContextVar("distlock_here")


def awaits_this(task: asyncio.Task[Any], seconds: float) -> bool:
    """Return whether *task*, whose event loop runs in another thread, awaits the code of this thread.

    Return False if the event loop does not respond in time. *seconds*: how long the caller would wait for the
    lock.
    """
    suspended = Lock()
    suspended.acquire()
    try:
        # The task may still run after it has started this thread. Wait until it awaits something.
        task.get_loop().call_soon_threadsafe(suspended.release)
    except RuntimeError:
        return False
    if not suspended.acquire(timeout=min(_PATIENCE, _SHARE * seconds)):
        return False
    # A coroutine that awaits a thread, as in `asyncio.to_thread`, has the thread's context in a variable.
    mark = object()
    before = _here.set(mark)
    try:
        # Not `isinstance`, which makes a lazy object load: request.user would send a query.
        return any(type(one) is Context and one.get(_here) is mark for one in _variables(_innermost(task)))
    finally:
        _here.reset(before)


def _innermost(task: asyncio.Task[Any]) -> object:
    """Return the innermost coroutine of *task*."""
    found: Any = task.get_coro()
    while isinstance(inner := getattr(found, "cr_await", None), CoroutineType):
        found = inner
    return found


def _variables(coroutine: object) -> list[object]:
    """Return the values of the variables of *coroutine*.

    The `f_locals` of its frame would keep the values alive while the coroutine runs.
    """
    found = gc.get_referents(coroutine)
    # Variables that inner functions use are in cells.
    return found + gc.get_referents(*(one for one in found if type(one) is CellType))


_PLAIN_WITH = (
    " This 'with' stopped the event loop, and so every task that may hold the lock: write 'async with'."
)

#: The cause and the remedy if code asks for a lock that its own request keeps.
_KEPT_BY_REQUEST = (
    "kept by the very request that this code runs in, which waits for itself: leave this lock out, for the "
    "request holds it already, or take it by the DistLock extension, as in 'with locks.lock(…)', which "
    "enters it again."
)

#: The ``with`` blocks around the running code. A contextvar, because pools run parts of several calls in one
#: thread, each in its own context. A thread or task that inherits a context is another owner.
blocks_around: ContextVar[tuple[Entry, ...]] = ContextVar("distlock_blocks", default=())


def begin(block: Entry) -> None:
    """Note that the running code has entered *block*."""
    around = blocks_around.get()
    blocks_around.set((*(one for one in around if one.is_open), block) if around else (block,))


def ending(entered: Sequence[Entry], frame: FrameType) -> Entry | None:
    """Return the block that the caller leaves in *frame*. Return None if *entered* is empty.

    *entered*: the blocks that run, the oldest first. A ``with`` statement enters and leaves its block in one
    frame, even if another thread or task closes its generator. For other callers of `__exit__`, such as
    `ExitStack`, return the owner's latest block, or the oldest block if the owner has none. A block whose
    lock was released or lost goes first, because code may still run under the others.
    """
    for block in reversed(entered):
        if block.frame is frame:
            return block
    owner = current_owner()
    own = [block for block in reversed(entered) if block.owner == owner]
    some = own or entered
    return next((block for block in some if not block.is_open), next(iter(some), None))


def end(block: Entry) -> None:
    """Note that the code has left *block*, maybe in another context than the one in which it entered."""
    # A frame keeps the variables of its code alive.
    block.frame = None
    if (around := blocks_around.get()) == (block,):
        blocks_around.set(())
    elif around:
        blocks_around.set(tuple(one for one in around if one is not block and one.is_open))


@contextmanager
def apart() -> Iterator[None]:
    """Ignore the ``with`` blocks around a request: they are those of a test that calls the site directly.

    The test and the request stand for two processes, so a lock of the test is no self-deadlock.
    """
    before = blocks_around.set(())
    try:
        yield
    finally:
        blocks_around.reset(before)


def is_any_around() -> bool:
    """Return whether a guard, a request or a ``with`` block around the running code may hold a lock."""
    return bool(blocks_around.get() or guards_around.get()) or request_around.get() is not None


def refuse_own(
    namespace: Namespace,
    names: Sequence[str],
    reads: bool = False,
    seconds: float = math.inf,
    *,
    enters_kept: bool = False,
) -> None:
    """Raise `ConfigurationError` if the running code would deadlock on one of *names*.

    It would if it holds the name itself, or if its request keeps the name, or if a task that awaits this
    thread holds it.

    *reads*: the code asks for a read lock, which waits neither for the code's own read locks nor for a write
    lock that the code holds through the same client. *seconds*: how long it would wait; 0: the tasks that
    await this thread are not checked. *enters_kept*: whether the client reenters a lock that the request
    keeps, so that such a lock is no deadlock.
    """
    if reads:
        owner = current_owner()
        read = [one for one in blocks_around.get() if one.reads]
        names = [
            name
            for name in names
            if not namespace.is_holder(name, owner) and not _common(namespace, [name], read)
        ]
    if common := _of_guard(namespace, names):
        raise ConfigurationError(
            f"The lock {common} is held by the guard around this very code, which would wait for itself: "
            "leave this lock out, for the guard holds it already."
        )
    if not enters_kept and (common := _of_request(namespace, names)):
        raise ConfigurationError(f"The lock {common} is {_KEPT_BY_REQUEST}")
    refuse_awaited(namespace, names, reads, seconds, blocks_around.get())
    if not namespace.keeps_out or not (around := blocks_around.get()):
        return
    owner = current_owner()
    own = [one for one in around if one.owner == owner]
    if common := _common(namespace, names, [one for one in own if one.reads]):
        raise upgrade_refusal(common)
    if common := _common(namespace, names, own):
        raise ConfigurationError(
            f"The lock {common} is held by a 'with' block around this very code, which would wait for "
            f"itself: leave the inner 'with' out, or write rlock({common}) twice, which lets its owner in "
            "again."
        )


def refuse_awaited(
    namespace: Namespace, names: Sequence[str], reads: bool, seconds: float, around: Sequence[Entry] = ()
) -> None:
    """Raise `ConfigurationError` if a task holds one of *names* and waits for the running thread.

    *reads*: the caller asks for a read lock, which does not wait for other read locks. *seconds*: how long it
    would wait; a caller that does not wait is never refused. *around*: the ``with`` blocks whose locks to
    check, besides those of the guards.
    """
    guards = inherited()
    if not seconds or not (guards or around) or not (namespace.keeps_out and namespace.has_owners):
        return
    grants = [(one.owner, one.grant) for one in guards if namespace.is_same(one.namespace)]
    blocks = [one for one in around if namespace.is_same(one.namespace)]
    grants += [(one.owner, one.grant) for one in blocks if one.grant is not None]
    for (thread, _, task), grant in grants:
        common = _shown(names, grant.names)
        if not common or grant.released or grant.lost or (reads and grant.mode == READ):
            continue
        holder = None if task is None else task()
        if holder is not None and thread != get_ident() and awaits_this(holder, seconds):
            raise ConfigurationError(
                f"The lock {common} is held by the task that awaits this very thread, so both would wait for "
                "themselves: take the lock in one of them only."
            )


def read_again(namespace: Namespace, names: Sequence[str], *, enters_kept: bool = False) -> Namespace | None:
    """Return the namespace of another client in which the running code holds all *names*, else None.

    By that namespace the code may read *names* again without waiting. *enters_kept*: whether the code's own
    client enters again a lock that the request keeps. Then such locks are not searched.
    """
    owner = current_owner()
    for guard in current_grants():
        if guard.namespace is namespace or not namespace.is_same(guard.namespace):
            continue
        if enters_kept and not guard.running:
            continue
        # The running owner has to be the holder. The owner of a kept grant may be another one, because hooks
        # and the view may run in different threads.
        if all(guard.namespace.is_holder(name, owner) for name in names):
            return guard.namespace
    for one in reversed(blocks_around.get()):
        if one.owner != owner or one.namespace is namespace or not set(names) <= set(one.names):
            continue
        if one.is_open and namespace.is_same(one.namespace):
            return one.namespace
    return None


def own_grant(namespace: Namespace, names: Sequence[str]) -> Grant | None:
    """Return the grant of a guard or ``with`` block around the running code with all *names*, else None."""
    guards = [one.grant for one in current_grants() if one.running and namespace.is_same(one.namespace)]
    owner = current_owner()
    own = [one for one in blocks_around.get() if one.owner == owner and namespace.is_same(one.namespace)]
    grants = guards + [one.grant for one in own if one.grant is not None and one.is_open]
    return next((grant for grant in grants if set(names) <= set(grant.names)), None)


def held_around() -> list[Grant]:
    """Return the grants of guards and ``with`` blocks around the running code, or around what started it."""
    blocks = [one.grant for one in blocks_around.get() if one.is_open and one.grant is not None]
    return [one.grant for one in inherited()] + blocks


def timed_out(namespace: Namespace, names: Sequence[str], seconds: float, stopped_loop: bool) -> LockTimeout:
    """Return the `LockTimeout` of a caller that has waited *seconds* in vain.

    *stopped_loop*: the wait has blocked the event loop, so that no task could run.
    """
    shown = ", ".join(map(repr, names))
    plain_with = _PLAIN_WITH if stopped_loop else ""
    if not namespace.has_owners:
        return LockTimeout(
            f"The semaphore {shown} had too few permits left for {seconds:g} seconds. Try again later, raise "
            f"the time-out, or its limit.{plain_with}"
        )
    if fault := own_fault(namespace, names):
        return LockTimeout(f"The lock {shown} was still held after {seconds:g} seconds, {fault}{plain_with}")
    return LockTimeout(
        f"The lock {shown} was still held by somebody else after {seconds:g} seconds. "
        # The command to type is the end of the message, so that it is easy to copy.
        f"Try again later, or raise the time-out.{plain_with}{_held_by(namespace, names)}"
    )


def _held_by(namespace: Namespace, names: Sequence[str]) -> str:
    """Return text that names the holder of *names* and the command that shows how to break the lock.

    Return "" if the holder is unknown. Does no I/O.
    """
    for name in names:
        holder = known_holder(namespace, name)
        if holder is not None:
            said = f" It has been held for {holder.seconds():.0f} seconds by {holder}."
            typed = namespace.typed
            if typed is None:
                return said
            first = f"put its URL into {URL} and " if typed.hides_url else ""
            return f"{said} If that is stuck, {first}see how to break it: {typed.line('show', name)}"
    return ""


def own_fault(namespace: Namespace, names: Sequence[str]) -> str | None:
    """Return text with the cause and the remedy if the running code itself holds *names*, else None."""
    if not namespace.has_owners:
        return None
    if _of_guard(namespace, names):
        return (
            "by the guard around this very code, which waits for itself: leave this lock out, for the "
            "guard holds it already."
        )
    if _of_request(namespace, names):
        return _KEPT_BY_REQUEST
    owner = current_owner()
    around = blocks_around.get()
    again = f"write rlock({', '.join(map(repr, names))}), which lets its owner in again."
    own = [one for one in around if one.owner == owner]
    if _common(namespace, names, [one for one in own if one.reads]):
        return "by a read lock around this very code, which waits for itself: release that one first."
    if _common(namespace, names, own):
        return f"by a 'with' block around this very code, which waits for itself: leave it out, or {again}"
    if any(namespace.is_holder(name, owner) for name in names):
        return f"by an acquire() of this very thread or task, which waits for itself: release it, or {again}"
    if is_held_around(namespace, names):
        return (
            "by the code that started this thread or task. If that waits for it, both wait for themselves: "
            "take the lock in one of them only."
        )
    return None


def is_held_around(namespace: Namespace, names: Sequence[str]) -> bool:
    """Return whether the running code, or the code that started it, is known to hold one of *names*."""
    owner = current_owner()
    return (
        any(namespace.is_holder(name, owner) for name in names)
        or bool(_common(namespace, names, blocks_around.get()))
        or any(
            namespace.is_same(one.namespace) and not set(names).isdisjoint(one.grant.names)
            for one in inherited()
            if not one.grant.lost
        )
    )


def _of_guard(namespace: Namespace, names: Sequence[str]) -> str:
    """Return, as text, those of *names* that a guard around the running code holds; "" if there are none."""
    return _of_grants(namespace, names, [one for one in current_grants() if one.running])


def _of_request(namespace: Namespace, names: Sequence[str]) -> str:
    """Return, as text, those of *names* that the request keeps after the call of a guard; "" if none."""
    return _of_grants(namespace, names, [one for one in current_grants() if not one.running])


def _of_grants(namespace: Namespace, names: Sequence[str], grants: Sequence[CurrentGrant]) -> str:
    for one in grants:
        common = _shown(names, one.grant.names)
        if common and not (one.grant.released or one.grant.lost) and namespace.is_same(one.namespace):
            return common
    return ""


def _common(namespace: Namespace, names: Sequence[str], blocks: Sequence[Entry]) -> str:
    """Return, as text, those of *names* that one of *blocks* holds; "" if there are none."""
    for one in blocks:
        common = _shown(names, one.names)
        if common and one.is_open and namespace.is_same(one.namespace):
            return common
    return ""


def _shown(names: Sequence[str], others: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names if name in others)
