"""The guard: lock, BEGIN, fence, view, check, COMMIT, release, in that order.

`Transactions` tell how a framework opens its transactions, and this module keeps the order. The view runs
only under its lock. If the lock is not granted, an error leaves the guard before the view begins. This keeps
promises G2 and G4 (docs/explanation/promises.md).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from distlock.engine.wait_queues import upgrade_refusal
from distlock.errors import ConfigurationError
from distlock.grants.current import (
    CurrentGrant,
    KeptGuardLock,
    current_grants,
    holding,
    inherited,
    keep_together,
)
from distlock.grants.grant import Grant
from distlock.locks.client import Locks
from distlock.locks.namespace import Namespace
from distlock.terms import EXCLUSIVE, READ, Mode, Terms
from distlock.web.guard_lock import GuardLock
from distlock.web.guard_marks import Guarded
from distlock.web.guard_stack import UpperGuard, fenced_by
from distlock.web.nested_deadlocks import waiting
from distlock.web.observer import Observer, watching
from distlock.web.settings.clients import GuardTerms

R = TypeVar("R")

#: Called with the grant at the end of a call, even of a failed one. If the lock is to outlive the call, it
#: returns the stack to which the guard adds the release of the lock; None: the guard releases it now.
Keep = Callable[[CurrentGrant], ExitStack | None]


class Transactions(Protocol):
    """How a framework opens the transactions of one call."""

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Raise `ConfigurationError` if a transaction is open that would be committed after the release.

        Called before the guard waits. *nested*: whether another guard, with other names, is around this one.
        """

    def begin(
        self, grant: Grant, fenced_in: str | None, left: Callable[[], float]
    ) -> AbstractContextManager[bool]:
        """Begin, pass the fence with *grant*, and commit or roll back at the end of the block.

        The block gets whether there is a transaction to commit. *fenced_in*: the framework's name of the
        database that is fenced; None: none. *left*: returns how many seconds are left to wait for fence rows.
        """


class Companion(Protocol):
    """Hooks around a lock that a guard takes. They are not called for a lock that the request keeps."""

    def begun(self, grant: Grant) -> None:
        """Do what has to be done in the transaction, before the body."""

    def ended(self, grant: Grant, error: BaseException | None) -> None:
        """Do what has to be done between COMMIT or ROLLBACK and the release.

        *error*: the exception that leaves the guard; None: it ends without one.
        """

    async def abegun(self, grant: Grant) -> None:
        """Do what `begun` does, before an async body."""

    async def aended(self, grant: Grant, error: BaseException | None) -> None:
        """Do what `ended` does, after an async body."""


class Options(TypedDict, total=False):
    """The options of one guarded call."""

    #: Seconds to wait for the lock; None: the client's.
    timeout: float | None
    #: The options of the locks; None: the client's.
    terms: Terms | None
    #: The database that is fenced; None: none.
    fenced_in: str | None
    #: The client whose rows take the place of fenced locks while the lock service does not answer; None: such
    #: calls fail then.
    standby: Locks | None
    #: Observes the lock.
    observer: Observer | None
    #: See `Keep`. None: the lock ends with the call.
    keep: Keep | None
    companion: Companion | None
    #: The guards that stand directly above this one, whose locks are taken before its own.
    uppers: Sequence[UpperGuard]


def run(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], R],
    transactions: Transactions,
    **options: Unpack[Options],
) -> R:
    """Run *body* under the locks *names*, in a transaction that is committed before they are released.

    Return the result of *body*. Names that an outer guard holds are not locked again. Raises `LockError`, and
    whatever *body* raises. An error rolls the transaction back, and so does the loss of a lock before COMMIT.
    """
    with ExitStack() as after_release, ExitStack() as until_released:
        try:
            next(_guarded(False, after_release, until_released, client, names, body, transactions, **options))
        except StopIteration as end:
            result: R = end.value
            return result
        except RuntimeError as error:
            # Python turns a StopIteration of *body* into this error, as it leaves the generator.
            raised = error.__cause__
            trace = raised.__traceback__ if isinstance(raised, StopIteration) else None
            if raised is not None and trace is not None and trace.tb_frame.f_code is _guarded.__code__:
                raise raised from None
            raise
    raise AssertionError("A guard of sync code has waited for an event loop.")


async def arun(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], Awaitable[R]],
    transactions: Transactions,
    **options: Unpack[Options],
) -> R:
    """Do what `run` does, for an async *body*."""
    with ExitStack() as after_release:
        async with AsyncExitStack() as until_released:
            call = _guarded(True, after_release, until_released, client, names, body, transactions, **options)
            try:
                awaited = next(call)
                while True:
                    try:
                        answer = await awaited
                    except BaseException as error:  # the guard ends, and raises it again
                        awaited = call.throw(error)
                    else:
                        awaited = call.send(answer)
            except StopIteration as end:
                result: R = end.value
    return result


def _guarded(
    in_task: bool,
    after_release: ExitStack,
    until_released: Any,
    client: Locks,
    names: Sequence[str],
    body: Callable[[], Any],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    terms: Terms | None = None,
    fenced_in: str | None = None,
    standby: Locks | None = None,
    observer: Observer | None = None,
    keep: Keep | None = None,
    companion: Companion | None = None,
    uppers: Sequence[UpperGuard] = (),
) -> Generator[Any, Any, Any]:
    """Do what `run` and `arun` do. In a task (*in_task*) it yields each awaitable, which `arun` awaits.

    *until_released*: the stack that releases the locks when it is closed; in a task an `AsyncExitStack`.
    *after_release*: the stack that is closed after that.
    """
    mode = EXCLUSIVE if terms is None else terms.mode
    namespace = client.namespace.of(mode)
    inheriting = inherited()
    around = current_grants() if inheriting else ()
    if around:
        names, kept = _wanted(namespace, names, mode, around, transactions, fenced_in)
        if not names:
            with kept or nullcontext():
                return (yield body()) if in_task else body()
        # `refuse_open` may have ended the transaction of a request hook, and so a grant that was kept for it.
        around = current_grants()
    else:
        transactions.refuse_open(names, nested=False)
    if fenced_in and mode == EXCLUSIVE and not uppers:
        terms = replace(terms or namespace.terms, fenced=True)
    if uppers:
        terms = replace(terms or namespace.terms, on_push=False)
        # The TIMEOUT of this guard's own alias does not count in a stack: the highest guard's does.
        timeout = -1 if timeout is None else timeout
    lock = GuardLock(client, namespace, names, around, timeout, terms)
    if standby is not None and fenced_in and not uppers:
        lock.fall_back_on(standby)
    enter = until_released.enter_async_context if in_task else until_released.enter_context
    held: list[CurrentGrant] = []
    if uppers:
        held = yield from _take_above(in_task, uppers, after_release, enter)
    watch = None if observer is None else after_release.enter_context(watching(observer, names))
    if watch is not None:
        lock.tell_waits(watch.contended)
    for upper in uppers:
        lock.end_with(upper.lock)
    if inheriting and not in_task:
        lock.refuse_awaited()
    inside = held or around
    with waiting(namespace, names, inside, mode, bool(held)) if inside else nullcontext():
        entered: Any = enter(lock)
        grant: Grant = (yield entered) if in_task else entered
    if companion is not None:
        ended: Any = companion.aended if in_task else companion.ended
        push: Any = until_released.push_async_exit if in_task else until_released.push
        push(lambda _kind, error, _trace: ended(_lost_of(held, grant), error))
    if watch is not None:
        watch.granted(grant)
    has_begun = False
    try:
        max_hold = math.inf if terms is None else terms.max_hold
        mine = CurrentGrant(namespace, grant, lock.owner, fenced_in, max_hold=max_hold)
        with holding(mine, held):
            fence = fenced_by(held, mine) if held else mine
            with transactions.begin(fence.grant, fence.fenced_in, lock.left) as commits:
                has_begun = True
                for upper in uppers:
                    upper.begun()
                if watch is not None:
                    watch.begun(grant)
                for one in held:
                    # This lock may have been lost while the call waited for the locks below it.
                    one.grant.check()
                if companion is not None and in_task:
                    yield companion.abegun(grant)
                elif companion is not None:
                    companion.begun(grant)
                result = (yield body()) if in_task else body()
                if commits:
                    # An error here prevents COMMIT, and rolls the transaction back.
                    for one in (*held, mine):
                        one.grant.check()
        if commits:
            for one in (*held, mine):
                one.grant._note_commit()
    finally:
        if keep is not None and has_begun:
            _ask_to_keep(keep, held, mine, after_release, until_released)
    return result


def _take_above(
    in_task: bool, uppers: Sequence[UpperGuard], after_release: ExitStack, enter: Callable[[GuardLock], Any]
) -> Generator[Any, Any, list[CurrentGrant]]:
    """Acquire the locks of *uppers*, the highest guard's first. Return their grants in that order."""
    held: list[CurrentGrant] = []
    for upper in uppers:
        after_release.enter_context(upper.watched())
        upper.lock.end_with(uppers[0].lock)
        if not in_task:
            upper.lock.refuse_awaited()
        with upper.waiting(held):
            entered = enter(upper.lock)
            held.append(upper.holding((yield entered) if in_task else entered))
    return held


def _lost_of(held: Sequence[CurrentGrant], mine: Grant) -> Grant:
    """Return a grant of the stack that was lost; else *mine*."""
    return next((one.grant for one in held if one.grant.lost), mine)


def _ask_to_keep(
    keep: Keep,
    held: Sequence[CurrentGrant],
    mine: CurrentGrant,
    after_release: ExitStack,
    until_released: ExitStack | AsyncExitStack,
) -> None:
    """Ask *keep* whether the locks outlive the call. If so, move their release to the stack of *keep*.

    *after_release* then ends there, too, and *until_released* releases nothing.
    """
    # A lock that is a row ends with its transaction, so ask for another lock of the stack if there is one.
    lasting = (
        next((one for one in (mine, *held) if not one.grant.held_by_transaction), mine) if held else mine
    )
    if later := keep(lasting):
        if held:
            keep_together((*held, mine), lasting)
        later.push(after_release.pop_all())
        # Not `arelease`: when the stack ends, there may be no event loop.
        for one in (*held, mine):
            later.callback(one.grant.release)
        # Do this last: an interrupt before it makes the locks released twice, not never.
        until_released.pop_all()


def leaves_to_below(
    guarded: Guarded,
    names: Sequence[str],
    transactions: Transactions,
    uppers: Sequence[UpperGuard],
    terms_of: Callable[[Guarded], GuardTerms],
) -> bool:
    """Return whether *guarded* leaves its lock *names* to the guard below: see `distlock.web.guard_stack`.

    It does not if another guard is around the stack, or if the guard below and one above it have aliases of
    one lock service. *terms_of*: returns the terms of a guard. Raises `ConfigurationError` if a transaction
    is open.
    """
    if guarded.below is None or current_grants():
        return False
    below = terms_of(guarded.below).client.namespace
    above = [terms_of(one).client.namespace for one in (guarded, *(upper.guarded for upper in uppers))]
    if any(below.is_same(one) for one in above):
        return False
    transactions.refuse_open(names, nested=False)
    return True


def check_held() -> Sequence[CurrentGrant]:
    """Return the grants of the guards around the running code, which is about to commit.

    Raises:
        LockLost: One of the locks was lost.
    """
    # Include those of an async view that has started this thread, which may commit the view's changes.
    held = inherited()
    for one in held:
        one.grant.check()
    return held


def _wanted(
    namespace: Namespace,
    names: Sequence[str],
    mode: Mode,
    around: Sequence[CurrentGrant],
    transactions: Transactions,
    fenced_in: str | None,
) -> tuple[Sequence[str], KeptGuardLock | None]:
    """Return those of *names* that no guard around the call holds, and None.

    If this request keeps all of those from an earlier call, return no name, and the `KeptGuardLock` to enter
    instead. Raises `LockLost` if a held lock was lost; `ConfigurationError` if the call can't work inside
    *around*.
    """
    running = [one for one in around if one.running]
    for one in running:
        if namespace.is_same(one.namespace) and not set(one.grant.names).isdisjoint(names):
            one.grant.check()
            refuse_upgrade(one.grant, names, mode)
            _refuse_unfenced(one, names, fenced_in)
            names = [name for name in names if name not in one.grant.names]
    if not names:
        return (), None
    if (again := kept_for(namespace, names)) is not None:
        refuse_upgrade(again.grant, names, mode)
        _refuse_unfenced(again, names, fenced_in)
        return (), again.kept
    transactions.refuse_open(names, nested=bool(running))
    refuse_kept(namespace, names)
    return names, None


def kept_for(namespace: Namespace, names: Sequence[str]) -> CurrentGrant | None:
    """Return the grant of all *names* that this request keeps in *namespace*; None: it keeps none.

    Raises `LockLost` if the lock was lost.
    """
    for one in current_grants():
        if one.kept and namespace.is_same(one.namespace) and set(names) <= set(one.grant.names):
            one.grant.check()
            return one
    return None


def refuse_kept(namespace: Namespace, names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if this request keeps some of *names*, because it would wait for itself."""
    for one in current_grants():
        both = [name for name in names if name in one.grant.names]
        if one.kept and both and namespace.is_same(one.namespace):
            until, first = (
                ("it is answered", "")
                if one.kept.with_request
                else (
                    "the transaction that was begun under it has ended",
                    "call db.session.commit() or rollback() before, in the same app context, or ",
                )
            )
            raise ConfigurationError(
                f"This request keeps {', '.join(map(repr, both))} until {until}, so taking "
                f"{', '.join(map(repr, names))} now would wait for the request itself: {first}take all names "
                "at once where the first is taken."
            )


def refuse_upgrade(held: Grant, names: Sequence[str], mode: Mode) -> None:
    """Raise `ConfigurationError` if *held* reads, and *names* are to be locked for writing."""
    if held.mode == READ and mode == EXCLUSIVE:
        raise upgrade_refusal(", ".join(repr(name) for name in names if name in held.names))


def _refuse_unfenced(outer: CurrentGrant, names: Sequence[str], fenced_in: str | None) -> None:
    if fenced_in not in {None, outer.fenced_in}:
        shown = ", ".join(map(repr, names))
        raise ConfigurationError(
            f"A guard on {shown} with fence={fenced_in!r} stands inside a guard on the same name "
            f"with fence={outer.fenced_in!r}, whose transaction it can't fence any more: write the fence on "
            "the outer guard."
        )
