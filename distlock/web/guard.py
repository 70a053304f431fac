"""The guard: lock, BEGIN, fence, view, check, COMMIT, release, in that order. G2 and G4 live here.

A framework says how its transactions are opened (`Transactions`); the order is ours. The view runs only
inside of its lock; whatever keeps the lock from it leaves as an error before the view.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from typing import Protocol, TypeVar

from distlock.current_grants import CurrentGrant, Kept, current_grants, holding, inherited
from distlock.engine.room import upgrade_refusal
from distlock.errors import ConfigurationError
from distlock.grant import Grant
from distlock.locks import Locks
from distlock.modes import EXCLUSIVE, READ, Mode
from distlock.namespace import Namespace
from distlock.terms import Terms
from distlock.web.guard_lock import GuardLock
from distlock.web.nesting import waiting
from distlock.web.observer import Observer, watching

R = TypeVar("R")

#: Asked when the call is over, with what it holds. Returns a stack that releases the lock when it is closed,
#: after the last transaction under the lock; None: it is released now.
Keep = Callable[[CurrentGrant], ExitStack | None]


class Transactions(Protocol):
    """How a framework opens the transactions of one call."""

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Raise `ConfigurationError` if a transaction is open that would be committed after the release.

        Called before anything waits. *nested*: another guard, with other names, is around this one.
        """

    def begin(
        self, grant: Grant, fenced_in: str | None, left: Callable[[], float]
    ) -> AbstractContextManager[bool]:
        """Begin, pass the fence with *grant*, and commit or roll back at the end.

        Gives whether there is anything to commit. *fenced_in*: which database is fenced, in the framework's
        words; None: none. *left*: seconds that may be waited for the fence's rows.
        """


def run(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], R],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    terms: Terms | None = None,
    fenced_in: str | None = None,
    standby: Locks | None = None,
    observer: Observer | None = None,
    keep: Keep | None = None,
) -> R:
    """Run *body* under the locks *names*, in a transaction that is committed before they are released.

    *timeout*: seconds; *terms*: of the locks; None: the client's. *fenced_in*: the database that is fenced;
    None: none.
    *standby*: whose rows are the locks of what is fenced while the lock service is away; None: nothing runs.
    *observer*: told what becomes of the lock. *keep*: see `Keep`; None: nothing outlives the call. Names
    that a guard around this one holds are ours already.
    Raises `LockError`s, and what *body* raises; the transaction is rolled back first, and a lock that was
    lost before COMMIT rolls it back, too.
    """
    around, mode = current_grants(), EXCLUSIVE if terms is None else terms.mode
    namespace = client.namespace.of(mode)
    wanted, kept = _wanted(namespace, names, mode, around, transactions, fenced_in)
    if not wanted:
        with kept or nullcontext():
            return body()
    if around:
        # What was kept may have ended since: to look for open transactions ends those of hooks.
        around = current_grants()
    lock = GuardLock(client, wanted, around, timeout, terms, standby if fenced_in else None)
    with ExitStack() as rest:
        watch = None if observer is None else rest.enter_context(watching(observer, wanted))
        if watch is not None:
            lock.tell_waits(watch.contended)
        with ExitStack() as until_released:
            with waiting(namespace, wanted, around, mode) if around else nullcontext():
                grant = until_released.enter_context(lock)
            if watch is not None:
                watch.granted(grant)
            with (
                holding(namespace, grant, fenced_in) as mine,
                transactions.begin(grant, fenced_in, lock.left) as commits,
            ):
                if watch is not None:
                    watch.begun(grant)
                result = body()
                if commits:
                    # The last moment at which nothing has happened yet.
                    grant.check()
            if commits:
                grant._note_commit()
            if keep is not None and (later := keep(mine)):
                until_released.pop_all()
                later.push(rest.pop_all())
                later.callback(grant.release)
    return result


async def arun(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], Awaitable[R]],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    terms: Terms | None = None,
    fenced_in: str | None = None,
    standby: Locks | None = None,
    observer: Observer | None = None,
    keep: Keep | None = None,
) -> R:
    """`run`, for an async *body*."""
    around, mode = current_grants(), EXCLUSIVE if terms is None else terms.mode
    namespace = client.namespace.of(mode)
    wanted, kept = _wanted(namespace, names, mode, around, transactions, fenced_in)
    if not wanted:
        with kept or nullcontext():
            return await body()
    if around:
        # What was kept may have ended since: to look for open transactions ends those of hooks.
        around = current_grants()
    lock = GuardLock(client, wanted, around, timeout, terms, standby if fenced_in else None)
    with ExitStack() as rest:
        watch = None if observer is None else rest.enter_context(watching(observer, wanted))
        if watch is not None:
            lock.tell_waits(watch.contended)
        async with AsyncExitStack() as until_released:
            with waiting(namespace, wanted, around, mode) if around else nullcontext():
                grant = await until_released.enter_async_context(lock)
            if watch is not None:
                watch.granted(grant)
            with (
                holding(namespace, grant, fenced_in) as mine,
                transactions.begin(grant, fenced_in, lock.left) as commits,
            ):
                if watch is not None:
                    watch.begun(grant)
                result = await body()
                if commits:
                    grant.check()
            if commits:
                grant._note_commit()
            if keep is not None and (later := keep(mine)):
                until_released.pop_all()
                later.push(rest.pop_all())
                # Where it ends there may be no event loop any more.
                later.callback(grant.release)
    return result


def check_held() -> None:
    """Raise `LockLost` if a guard around the running code has lost its lock: for use just before a COMMIT."""
    # A helper thread of an async view owns no lock, but commits what was done under it.
    for one in inherited():
        one.grant.check()


def note_commit() -> None:
    """Tell the listeners of the locks around the running code that its transaction was committed."""
    for one in inherited():
        one.grant._note_commit()


def _wanted(
    namespace: Namespace,
    names: Sequence[str],
    mode: Mode,
    around: Sequence[CurrentGrant],
    transactions: Transactions,
    fenced_in: str | None,
) -> tuple[Sequence[str], Kept | None]:
    """Those of *names* that are not held yet. A held one that was lost raises `LockLost`.

    Where all of them are kept from a call before: what to enter.
    """
    if not around:
        transactions.refuse_open(names, nested=False)
        return names, None
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
    """What this request keeps of *namespace* that has all of *names*. Raises `LockLost` if it was lost."""
    for one in current_grants():
        if one.kept and namespace.is_same(one.namespace) and set(names) <= set(one.grant.names):
            one.grant.check()
            return one
    return None


def refuse_kept(namespace: Namespace, names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if this request keeps some of *names*: it would wait for itself."""
    for one in current_grants():
        both = [name for name in names if name in one.grant.names]
        if one.kept and both and namespace.is_same(one.namespace):
            raise ConfigurationError(
                f"This request keeps {', '.join(map(repr, both))} until the transaction that was begun under "
                f"it has ended, so taking {', '.join(map(repr, names))} now would wait for the request "
                "itself: call db.session.commit() or rollback() before, in the same app context, or take "
                "all names at once where the first is taken."
            )


def refuse_upgrade(held: Grant, names: Sequence[str], mode: Mode) -> None:
    """Raise `ConfigurationError` if *held* reads one of *names*, and they are wanted to write."""
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
