"""The lock of one guarded call.

With ``"ON_BACKEND_DOWN": "run"`` the fence's row is the lock while the lock service does not answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from distlock.clock import now
from distlock.engine.sans_io import Parker, TaskParker, ThreadParker, arun, run
from distlock.errors import BackendUnavailable, LockTimeout
from distlock.grants.current import CurrentGrant
from distlock.grants.grant import Grant
from distlock.listening import Contended, OnContended
from distlock.locks import self_deadlock as blocks
from distlock.locks.client import Locks
from distlock.locks.namespace import Acquirer, AcquirerWrapper, Acquisition, Namespace
from distlock.owner import in_event_loop
from distlock.terms import PERMIT, READ, Terms
from distlock.web.nested_deadlocks import patience

logger = logging.getLogger("distlock")


class GuardLock:
    """The lock that one call of a guard takes.

    Its release never raises for a lost lock: after COMMIT the view's answer is valid. Unlike other locks, it
    waits for a name that a ``with`` block around it holds, although that is a self-deadlock: a site's test
    may hold the lock, and call the guarded view in the same thread to see how it answers.

    Args:
        client: The client whose lock service has the lock.
        namespace: The client's namespace for the mode of the lock.
        names: The names to lock.
        around: The grants that the caller holds already.
        timeout: Seconds for the lock and its fence together; None: the client's; -1: no limit.
        terms: The options of the lock; None: the client's.
    """

    __slots__ = ("_acquirer", "_deadline", "_grant", "_names", "_namespaces", "_terms", "_wait", "owner")

    def __init__(
        self,
        client: Locks,
        namespace: Namespace,
        names: Sequence[str],
        around: Sequence[CurrentGrant],
        timeout: float | None,
        terms: Terms | None,
    ) -> None:
        if timeout is None:
            timeout = client.timeout
        if timeout == -1:
            timeout = math.inf
        #: Sorted: all callers acquire names in the same order, so that they don't deadlock.
        self._names = tuple(sorted(set(names)))
        self._terms = terms or namespace.terms
        in_rings = around and self._terms.mode != PERMIT
        self._wait = patience(namespace, names, around, timeout) if in_rings else timeout
        self._deadline = now() + timeout
        self._namespaces = [namespace]
        self._acquirer: Acquirer = client.acquirer

    def fall_back_on(self, standby: Locks) -> None:
        """Lock rows of *standby* instead if the lock service does not answer."""
        self._namespaces.append(standby.namespace)
        self._acquirer = _RowMeanwhile(self._acquirer, standby.acquirer, self.left)

    def tell_waits(self, tell: OnContended) -> None:
        """Call *tell* if the caller has to wait."""
        self._acquirer = Contended(self._acquirer, tell)

    def end_with(self, other: GuardLock) -> None:
        """Shorten the wait so that it ends no later than the wait of *other*, whose time runs already."""
        self._deadline = min(self._deadline, other._deadline)
        self._wait = max(0.0, min(self._wait, self.left()))

    def left(self) -> float:
        """Return how many seconds of the timeout are left; it may be negative."""
        return self._deadline - now()

    def refuse_awaited(self) -> None:
        """Raise `ConfigurationError` if a task holds the lock and awaits this very thread."""
        blocks.refuse_awaited(self._namespaces[0], self._names, self._terms.mode == READ, self._wait)

    def __enter__(self) -> Grant:
        parker = ThreadParker()
        self.owner = parker.owner
        try:
            grant = run(self._acquirer.acquire(self._names, parker, self._wait, self._terms))
            if grant is None:
                raise self._timed_out(stopped_loop=in_event_loop())
            grant.timeout = self._wait
            self._grant = grant
            return grant
        except BaseException as error:
            self._abandon(parker, error)
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._grant.release()
        except BaseException as error:
            self._grant._abandon(error)
            raise

    async def __aenter__(self) -> Grant:
        parker = TaskParker()
        self.owner = parker.owner
        try:
            grant = await arun(self._acquirer.acquire(self._names, parker, self._wait, self._terms))
            if grant is None:
                raise self._timed_out(stopped_loop=False)
            grant.timeout = self._wait
            self._grant = grant
            return grant
        except BaseException as error:
            self._abandon(parker, error)
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self._grant.arelease()
        except BaseException as error:
            self._grant._abandon(error)
            raise

    def _timed_out(self, stopped_loop: bool) -> LockTimeout:
        return blocks.timed_out(self._namespaces[0], self._names, self._wait, stopped_loop)

    def _abandon(self, parker: Parker, error: BaseException) -> None:
        """Undo the acquisition with *parker*, which ended with *error*, in each namespace. Does no I/O."""
        for namespace in self._namespaces:
            namespace.abandon(self._names, parker, error)


class _RowMeanwhile(AcquirerWrapper):
    """An acquirer that acquires from *rows* if the lock service of *inner* does not answer.

    *left*: returns the seconds that the caller may still wait.
    """

    def __init__(self, inner: Acquirer, rows: Acquirer, left: Callable[[], float]) -> None:
        super().__init__(inner)
        self._rows = rows
        self._left = left

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        try:
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        except BackendUnavailable as error:
            logger.error(
                "Without its lock service, the lock %s is the fence's row this time: %s",
                ", ".join(map(repr, names)),
                error,
            )
        left = max(0.0, self._left())
        return (yield from self._rows.acquire(names, parker, left, self._rows.namespace.terms))
