"""A stack: guards of several lock services, one directly above the other on one view.

The lowest guard of the stack works for all: it takes the locks, the highest guard's first, begins one
transaction, and after COMMIT releases the locks in reverse. The guards above it only name their locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from distlock.errors import ConfigurationError
from distlock.grants.current import CurrentGrant
from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace
from distlock.terms import EXCLUSIVE, READ, Mode
from distlock.web.guard_lock import GuardLock
from distlock.web.guard_marks import Guarded, guard_at
from distlock.web.guard_options import EVERY_METHOD
from distlock.web.nested_deadlocks import waiting
from distlock.web.observer import Observer, Watch, watching
from distlock.web.settings.clients import GuardTerms

#: The remedy, in errors, for two locks of different aliases before one transaction.
STACK = (
    "A lock of another alias has a decorator of its own: write it directly below, with nothing between them, "
    "and the same methods= and on_contended= in both."
)


@dataclass(slots=True)
class UpperGuard:
    """One call of a guard that leaves its lock to the lowest guard of its stack."""

    guarded: Guarded
    namespace: Namespace
    names: Sequence[str]
    lock: GuardLock
    mode: Mode
    fenced_in: str | None
    max_hold: float
    observer: Observer | None
    #: Whether the lowest guard has taken it over.
    taken: bool = False
    _watch: Watch | None = None
    _grant: Grant | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notify the observer about the lock, which is acquired and released in the block."""
        with watching(self.observer, self.names) as self._watch:
            if self._watch is not None:
                self.lock.tell_waits(self._watch.contended)
            yield

    @contextmanager
    def waiting(self, held: Sequence[CurrentGrant]) -> Iterator[None]:
        """Raise `LockTimeout` if the block would wait in a circle, while the guards above hold *held*."""
        with waiting(self.namespace, self.names, held, self.mode, True) if held else nullcontext():
            yield

    def begun(self) -> None:
        """Notify the observer that the transaction has begun. A lock that is a row is granted only now."""
        if self._watch is not None and self._grant is not None:
            self._watch.begun(self._grant)

    def holding(self, grant: Grant) -> CurrentGrant:
        """Note that this guard has *grant*, notify the observer, and return it as a `CurrentGrant`."""
        self._grant = grant
        if self._watch is not None:
            self._watch.granted(grant)
        return CurrentGrant(self.namespace, grant, self.lock.owner, self.fenced_in, max_hold=self.max_hold)


_upper: ContextVar[tuple[UpperGuard, ...]] = ContextVar("distlock_upper_guards", default=())


def stack_with(guarded: Guarded, function: Callable[..., Any]) -> Guarded | None:
    """Return the guard that *function* is, if it forms a stack with *guarded*, else None. Set its `is_below`.

    Both guards need different aliases, the same methods and the same ``on_contended``, and no ``when``.
    Raises `ConfigurationError` for a batch: its requests share one transaction and one lock.
    """
    lower = guard_at(function)
    if lower is None or lower.options.alias == guarded.options.alias:
        return None
    if guarded.when is not None or lower.when is not None:
        return None
    if (guarded.methods or EVERY_METHOD) != (lower.methods or EVERY_METHOD):
        return None
    if (guarded.options.responds, guarded.options.skips) != (lower.options.responds, lower.options.skips):
        return None
    if guarded.options.batch is not None or lower.options.batch is not None:
        raise ConfigurationError(
            f"@{guarded.options} stands on @{lower.options} on {lower.where}. A batch takes the lock of one "
            "alias: leave batch= out until one of the two decorators is gone."
        )
    lower.is_below = True
    return lower


@contextmanager
def stacked(
    guarded: Guarded,
    names: Sequence[str],
    terms: GuardTerms,
    observer: Observer | None,
    uppers: Sequence[UpperGuard],
) -> Iterator[None]:
    """Leave the lock *names* of *guarded* to the guard below, which is called in the block.

    *uppers*: the guards above *guarded*, which do the same. Raises `ConfigurationError` at the end of the
    block if the guard below did not take the lock.
    """
    lock = replace(terms.lock, on_push=False)
    # The time-out of the highest guard counts for all, unless a lower decorator gives a shorter one.
    timeout = -1 if uppers and guarded.options.timeout is None else guarded.options.timeout
    namespace = terms.client.namespace.of(lock.mode)
    upper = UpperGuard(
        guarded,
        namespace,
        names,
        GuardLock(terms.client, namespace, names, (), timeout, lock),
        lock.mode,
        terms.fenced_in,
        lock.max_hold,
        observer,
    )
    before = _upper.set((*uppers, upper))
    try:
        yield
    finally:
        _upper.reset(before)
    if not upper.taken:
        at = f"@{guarded.options} on {guarded.where}"
        raise ConfigurationError(f"The guard below {at} did not lock the call.")


def refuse_if_relied_on(guarded: Guarded) -> None:
    """Raise `ConfigurationError` if guards above *guarded*, which does not lock this call, rely on it."""
    uppers = _upper.get()
    if uppers and uppers[-1].guarded.below is guarded:
        above = uppers[-1].guarded.options
        raise ConfigurationError(
            f"@{above} locks this call of {guarded.where}, and @{guarded.options} directly below it does "
            "not: write the same methods= and mode= in both."
        )


def upper_guards(guarded: Guarded) -> tuple[UpperGuard, ...]:
    """Take over the guards above *guarded* that leave their locks to it. Return them, the highest first."""
    uppers = _upper.get()
    if not uppers or uppers[-1].guarded.below is not guarded:
        return ()
    _upper.set(())
    for one in uppers:
        one.taken = True
    return uppers


def session_mode(guarded: Guarded, uppers: Sequence[UpperGuard]) -> Mode | None:
    """Return the mode in which a stack locks all requests of a session, else None: see `GuardOptions`."""
    modes = {one.options.session_mode for one in (guarded, *(upper.guarded for upper in uppers))}
    return EXCLUSIVE if EXCLUSIVE in modes else READ if READ in modes else None


def fenced_by(held: Sequence[CurrentGrant], mine: CurrentGrant) -> CurrentGrant:
    """Return the grant with which a stack passes the fence: the highest guard's that is fenced, else *mine*.

    *held*: the grants of the upper guards; *mine*: the lowest guard's. Raises `ConfigurationError` if two
    databases are fenced, or if one lock is a row and another one has a fence.
    """
    fenced = [one for one in (*held, mine) if one.fenced_in is not None]
    rows = [one for one in fenced if one.grant.held_by_transaction]
    if len({one.fenced_in for one in fenced}) > 1 or (rows and len(fenced) > 1):
        raise ConfigurationError(
            f"Two decorators that stand on each other lock {', '.join(map(repr, mine.grant.names))}, and no "
            "database can check the fences of both: write fence=False on one of them. If the lock of one is "
            "a row of the database, that is the other one."
        )
    return (rows or fenced or [mine])[0]
