"""`Locks`, the client: it makes the locks, semaphores and latches of one lock service."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Never, TypedDict, TypeVar, Unpack

from distlock.engine.sans_io import call_in_thread
from distlock.grants.grant import OnReleaseRequested
from distlock.locks.latch import Latch, check_total
from distlock.locks.lock import Lock, ReadLock, Semaphore
from distlock.locks.namespace import Acquirer, AtEnd
from distlock.locks.rlock import RLock
from distlock.names import check_name
from distlock.numbers import MOST_SECONDS, check_permits, check_seconds, check_timeout
from distlock.operate import looking
from distlock.operate.looking import Listed, LockState
from distlock.suggestions import refuse_unknown
from distlock.terms import PERMIT, READ, Kind, Terms, calling_code

#: How many entries `alist` reads in each call in a worker thread.
_AT_ONCE = 100

F = TypeVar("F", bound=Callable[..., Any])


class HoldOptions(TypedDict, total=False):
    """The options of semaphores and of locks. `Locks.lock` says what they mean."""

    timeout: float | None
    ttl: float | None
    max_hold: float | None


class LockOptions(HoldOptions, total=False):
    """The options of locks: those of semaphores, and *on_release_requested*."""

    on_release_requested: OnReleaseRequested | None


def takes(options: type, **defaults: object) -> Callable[[F], F]:
    """Return a decorator that makes `help` show each option of a function with ``**options``.

    *options*: the TypedDict with which the function annotates its ``**options``. *defaults*: the default that
    `help` shows for each option; None for all others.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        others = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        shown = [
            inspect.Parameter(
                word,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(word),
                annotation=hint.__forward_arg__,
            )
            for word, hint in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*others, *shown])  # type: ignore[attr-defined]
        return function

    return decorate


class Locks:
    """A client of one lock service: it makes locks under one prefix. Threads and tasks may share it.

    A forked child may use it, too, but has none of the locks that its parent holds.
    """

    def __init__(self, acquirer: Acquirer, timeout: float, at_end: AtEnd | None = None) -> None:
        """Make a client of the namespace of *acquirer*.

        *timeout*: the longest wait of locks without their own, seconds; -1: no limit. *at_end*: called at the
        end of each ``with`` block that releases a lock.
        """
        self.acquirer = acquirer
        self.namespace = acquirer.namespace
        self.prefix = self.namespace.prefix
        self.timeout = timeout
        self.at_end = at_end

    @takes(LockOptions)
    def lock(self, *names: str, on_push: bool = False, **options: Unpack[LockOptions]) -> Lock:
        """Return a lock of *names*. This call does not ask the lock service.

        Entering the lock acquires all of the names or none, in the same order in every process.

        *names*: one or several, each text of 1 to 255 characters.
        *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: no limit. None: the
        client's.
        *ttl*: how long the lock lives without renewal, seconds, more than 0. None: the client's.
        *max_hold*: seconds after which the holder counts as hung, and is not renewed any more; more than 0.
        None: the client's.
        *on_push*: True: a waiting thread begins as soon as Redis pushes that another process has handed the
        lock off, and has the hand-off confirmed later. That is faster; "Beginning on the push" in the
        documentation says what it costs.
        *on_release_requested*: called with the grant, in a thread of its own, after `request_release` of one
        of the names.

        Returns a `Lock`, for ``with``, ``async with`` or `Lock.acquire`. Raises `InvalidName`; TypeError
        without a name or for an unknown argument; `ConfigurationError` for an invalid *ttl* or *max_hold*,
        and for *on_release_requested* if the lock service can't do it; TypeError, ValueError or OverflowError
        for an invalid *timeout*.

        The ``with`` block gets a `Grant`. Entering the block raises `LockTimeout` if the lock stays taken;
        `TooManyWaiters` if the wait would most likely be in vain, or the client's limit of waiters is
        reached; `BackendUnavailable`; `Reentered` in a signal handler that has interrupted distlock;
        `ConfigurationError` inside a ``with`` or a guard on the same name, which would be a deadlock. The end
        of the block raises `LostInside` if the lock was lost.

        Example::

            with locks.lock("product_1", "product_2", timeout=2) as grant:
                grant.check()
        """
        ordered, timeout, terms = self._checked("lock", names, options)
        terms.on_push = on_push
        return Lock(self, ordered, timeout, terms)

    @takes(LockOptions)
    def rlock(self, *names: str, **options: Unpack[LockOptions]) -> RLock:
        """Return a re-entrant lock of *names*: its owner, the running thread or task, may take it again.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. `RLock` says what counts
        as the owner.

        Raises what `lock` raises. In any other thread or task than the owner, `RLock.release` raises
        `NotHeld`.

        Example::

            with locks.rlock("product_1"):
                with locks.rlock("product_1", "product_2") as grant:
                    grant.check()
        """
        return RLock(self, *self._checked("rlock", names, options))

    @takes(LockOptions)
    def write_lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Return an exclusive lock, as `lock` does: the counterpart of `read_lock`.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. `Grant.downgrade` turns
        the lock into a read lock.

        Raises what `lock` raises. Acquiring the lock raises `ConfigurationError` if the caller has a read
        lock of one of the *names*, because it would wait for itself.

        Example::

            with locks.write_lock("catalogue") as grant:
                grant.downgrade()
        """
        return self.lock(*names, **options)

    @takes(LockOptions)
    def read_lock(self, *names: str, **options: Unpack[LockOptions]) -> ReadLock:
        """Return a lock of *names* that any number of readers share, and that keeps writers out.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. `ReadLock` says which
        callers read without waiting for writers.

        Raises what `lock` raises; `ConfigurationError` if the backend has no locks that readers share.

        Example::

            with locks.read_lock("catalogue", timeout=2):
                print("nobody writes")
        """
        self.namespace.refuse_lacking("read", "read_lock()")
        ordered, timeout, terms = self._checked("read_lock", names, options)
        terms.mode = READ
        return ReadLock(self, ordered, timeout, terms)

    @takes(HoldOptions)
    def semaphore(
        self, name: str, *, limit: int, permits: int = 1, **options: Unpack[HoldOptions]
    ) -> Semaphore:
        """Return a semaphore: *limit* permits of *name*, over all processes, first come, first served.

        *name*: text of 1 to 255 characters. A lock of the same name is independent of the semaphore.
        *limit*: how many permits there are, 1 to 1,000,000. *permits*: how many permits each acquisition
        takes, 1 to *limit*. *timeout*, *ttl*, *max_hold*: as for `lock`; the permits of a process that was
        killed come back when their *ttl* is over.

        Raises what `lock` raises; `ConfigurationError` for an invalid *limit* or *permits*, and if the
        backend has no semaphores. The grants of a semaphore have no fence.

        Example::

            with locks.semaphore("gateway", limit=10):
                print("at most ten at a time")
        """
        self.namespace.refuse_lacking("permits", "semaphore()")
        check_permits(limit, permits)
        ordered, timeout, terms = self._checked("semaphore", (name,), options)
        terms.mode, terms.limit, terms.permits = PERMIT, limit, permits
        return Semaphore(self, ordered, timeout, terms)

    def latch(
        self,
        name: str,
        count: int | None = None,
        *,
        ttl: float = 3600.0,
        timeout: float | None = None,
        **unknown: Never,
    ) -> Latch:
        """Return a latch: callers wait until other callers have counted it down from *count* to 0.

        This call does not ask the lock service.

        *name*: text of 1 to 255 characters. A lock of the same name is independent of the latch.
        *count*: how much has to be counted down until the latch is open, 0 or more, the same in all code.
        None: other code makes the latch, so this code need not know its count.
        *ttl*: how long the latch lives after `Latch.make`, and after each count, seconds, more than 0 and at
        most 1,000,000,000. Then it is gone, open or not. Only `Latch.make` uses this.
        *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: until the latch is gone.
        None: the client's.

        Returns a `Latch`. Raises `InvalidName`; TypeError for an unknown argument; `ConfigurationError` for
        an invalid *count* or *ttl*, and if the lock service has no latches; TypeError, ValueError or
        OverflowError for an invalid *timeout*.

        Example::

            locks.latch("import_7", 3, ttl=600).make()
            # Each of three importers, anywhere, when it is done:
            locks.latch("import_7").count_down()
            # Where all of them are needed:
            if locks.latch("import_7").wait(300):
                print("All three are done.")
        """
        if unknown:
            refuse_unknown("latch", unknown, inspect.signature(self.latch).parameters)
        check_name(name)
        total = None if count is None else check_total(count)
        if timeout is not None and timeout != -1:
            check_timeout(timeout)
        longest = self.timeout if timeout is None else timeout
        return Latch(
            self.namespace.latches,
            self.prefix,
            name,
            total,
            check_seconds("ttl", ttl, most=MOST_SECONDS),
            longest,
        )

    # -- looking at locks ------------------------------------------------------------------------
    #
    # The asyncio versions run in the threads of the event loop's own executor. None of them waits for a lock
    # there. A slow call delays no acquisition or release, because those use other threads.

    def inspect(self, name: str, kind: Kind = "lock") -> LockState:
        """Return who holds *name*, since when, and who waits for it, in order, at one moment.

        *kind*: what has the name, "lock", "semaphore" or "latch". Asks the lock service, and changes nothing.
        Raises `InvalidName`; `BackendUnavailable`; `ConfigurationError` for another *kind*, and if the lock
        service does not show who holds a lock.

        Example::

            print(locks.inspect("product_1").holder, locks.inspect("gateway", "semaphore").inside)
        """
        return looking.inspect(self.namespace, name, kind)

    async def ainspect(self, name: str, kind: Kind = "lock") -> LockState:
        """`inspect`, for asyncio."""
        return await call_in_thread(self.inspect, name, kind)

    def list(self, before: str = "") -> Iterator[Listed]:
        """Yield what processes have held or waited for, for longer than about three seconds.

        First come locks, then semaphores, then latches. *before*: what the names begin with. Each process
        publishes every few seconds what it holds and waits for; if the lock service knows this by itself, the
        list is up to date. Entries are read in small parts while you iterate, so the list does not show one
        moment.
        Raises `BackendUnavailable`; `ConfigurationError` if the lock service does not show who holds a lock.

        Example::

            for one in locks.list("product_"):
                print(one.name, "held" if one.held else "waited for", one.party)
        """
        return looking.list_locks(self.namespace, before)

    async def alist(self, before: str = "") -> AsyncIterator[Listed]:
        """`list`, for asyncio: ``async for one in locks.alist("product_")``."""
        listed = self.list(before)
        while some := await call_in_thread(_some, listed):
            for one in some:
                yield one

    def request_release(self, name: str) -> bool:
        """Ask the holder of *name*, in any process, to release it. Returns whether anybody holds it.

        This call does not wait for the release, and does not force it. In the process of the holder,
        `Grant.release_requested` becomes True, and the lock's *on_release_requested* is called: at once, or
        within some seconds, as the page of its backend says. A later grant of the name is not affected.
        Raises `InvalidName`; `BackendUnavailable`; `ConfigurationError` if the lock service can't do it.

        Example::

            if locks.request_release("catalogue"):
                print("An import runs, and was asked to stop.")
        """
        return self.namespace.request_release(check_name(name))

    async def arequest_release(self, name: str) -> bool:
        """`request_release`, for asyncio. After a cancellation, the request may still reach the holder."""
        return await call_in_thread(self.request_release, name)

    def close(self) -> None:
        """Release everything, end the threads and close the connections. The client may be used again."""
        self.namespace.close()

    def _checked(
        self, method: str, names: tuple[str, ...], options: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], float | None, Terms]:
        known = HoldOptions if method == "semaphore" else LockOptions
        if unknown := options.keys() - known.__annotations__.keys():
            refuse_unknown(method, unknown, inspect.signature(getattr(self, method)).parameters)
        if not names:
            raise TypeError(f"{method}() needs at least one name, for example {method}('product_1').")
        # Each name once, and in one order for all callers, so that they never deadlock.
        ordered = tuple(sorted({check_name(name) for name in names})) if names[1:] else (check_name(*names),)
        timeout, ttl, max_hold = options.get("timeout"), options.get("ttl"), options.get("max_hold")
        if timeout is not None and timeout != -1:
            timeout = check_timeout(timeout)
        usual = self.namespace.terms
        ttl = usual.ttl if ttl is None else check_seconds("ttl", ttl)
        max_hold = usual.max_hold if max_hold is None else check_seconds("max_hold", max_hold)
        if (on_release_requested := options.get("on_release_requested")) is not None:
            self.namespace.refuse_lacking("notify", f"{method}(on_release_requested=…)")
        terms = Terms(ttl, max_hold, calling_code(), on_release_requested=on_release_requested)
        return ordered, timeout, terms


def _some(listed: Iterator[Listed]) -> tuple[Listed, ...]:
    return tuple(islice(listed, _AT_ONCE))
