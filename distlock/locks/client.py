"""The client: it makes locks of names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Never, TypedDict, TypeVar, Unpack

from distlock.grants.grant import OnReleaseRequested
from distlock.locks.latch import Latch, check_total
from distlock.locks.lock import Lock, ReadLock, Semaphore
from distlock.locks.namespace import Acquirer, AtEnd
from distlock.locks.rlock import RLock
from distlock.names import check_name
from distlock.numbers import LONG, check_permits, check_seconds, check_timeout
from distlock.operate import looking
from distlock.operate.looking import Listed, LockState
from distlock.suggestions import refuse_unknown
from distlock.terms import PERMIT, READ, Kind, Terms, calling_code

#: How many locks `alist` reads in one call of a thread.
_AT_ONCE = 100

F = TypeVar("F", bound=Callable[..., Any])


class HoldOptions(TypedDict, total=False):
    """The options of a semaphore. `Locks.lock` says what they mean."""

    timeout: float | None
    ttl: float | None
    max_hold: float | None


class LockOptions(HoldOptions, total=False):
    """The options of a lock of any kind."""

    on_release_requested: OnReleaseRequested | None


def takes(options: type, **defaults: object) -> Callable[[F], F]:
    """Decorate a function that takes ``**options``: `help` shows each of them.

    *options*: the TypedDict of the annotation, which type checkers and editors read by themselves.
    *defaults*: what help shows as their defaults; None where it is not given.
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
    """Locks of one lock service under one prefix. Threads, tasks and forked children share it."""

    def __init__(self, acquirer: Acquirer, timeout: float, at_end: AtEnd | None = None) -> None:
        """*acquirer*: what takes the names. *timeout*: the longest wait, seconds; -1: no limit."""
        self.acquirer = acquirer
        self.namespace = acquirer.namespace
        self.prefix = self.namespace.prefix
        self.timeout = timeout
        self.at_end = at_end

    @takes(LockOptions)
    def lock(self, *names: str, on_push: bool = False, **options: Unpack[LockOptions]) -> Lock:
        """Return a lock of *names*. The lock service is not asked before the lock is entered.

        All of the names are acquired or none, in the same order in every process.

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
        without a name or for an unknown argument; `ConfigurationError` for a wrong *ttl* or *max_hold*;
        ValueError or OverflowError for a wrong *timeout*.

        The ``with`` block gets a `Grant`. To enter it raises `LockTimeout` if the lock stays taken;
        `TooManyWaiters` if the wait would most likely be in vain; `BackendUnavailable`; `Reentered` in a
        signal handler that has interrupted distlock; `ConfigurationError` inside a ``with`` or a guard on the
        same name, which would be a deadlock. Its end raises `LostInside` if the lock was lost.

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

        Raises what `lock` raises. Only its owner may release it: elsewhere `RLock.release` raises `NotHeld`.

        Example::

            with locks.rlock("product_1"):
                with locks.rlock("product_1", "product_2") as grant:
                    grant.check()
        """
        return RLock(self, *self._checked("rlock", names, options))

    @takes(LockOptions)
    def write_lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Return an exclusive lock, as `lock` does; its name in a pair with `read_lock`.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. Its `Grant.downgrade`
        lets others read.

        Raises what `lock` raises; `ConfigurationError` where the caller reads one of the *names*: it would
        wait for itself.

        Example::

            with locks.write_lock("catalogue") as grant:
                grant.downgrade()
        """
        return self.lock(*names, **options)

    @takes(LockOptions)
    def read_lock(self, *names: str, **options: Unpack[LockOptions]) -> ReadLock:
        """Return a lock of *names* that any number of readers share, and that keeps writers out.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. `ReadLock` says who may
        read at once.

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

        *name*: it has nothing to do with a lock of that name. *limit*: how many permits there are, 1 or more.
        *permits*: how many of them this one takes at once. *timeout*, *ttl*, *max_hold*: as for `lock`; the
        permits of a process that was killed come back when their *ttl* is over.

        Raises what `lock` raises; `ConfigurationError` for a *limit* or *permits* that can't be, and if the
        backend has no semaphores. Its grants have no fence.

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
        """A latch: some wait until others have counted it down from *count* to 0. Nothing is asked yet.

        *name*: text of 1 to 255 characters. A lock of that name is something else.
        *count*: how often it is counted down until it is open, 0 or more. For `Latch.make`; elsewhere it may
        be left out, or else has to be the same.
        *ttl*: for how long it lives after `Latch.make`, and after each count, seconds, more than 0. Then it
        is gone, open or not. It is for `Latch.make`, too.
        *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: no limit but its life.
        None: the client's.

        Returns a `Latch`. Raises `InvalidName`; TypeError for an unknown argument; `ConfigurationError` for a
        *count* or *ttl* that can't be, and where the lock service has no latches; ValueError or OverflowError
        for a *timeout* that can't be.

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
            self.namespace.latches, self.prefix, name, total, check_seconds("ttl", ttl, most=LONG), longest
        )

    # -- looking at locks ------------------------------------------------------------------------
    #
    # The calls for asyncio run in a thread: nobody waits for a lock in them, and what is slow there keeps
    # no task from releasing a lock.

    def inspect(self, name: str, kind: Kind = "lock") -> LockState:
        """The holder of *name*, since when, and those that wait for it, in order: a picture of one moment.

        *kind*: what has the name, "lock", "semaphore" or "latch". Asks the lock service, and changes nothing.
        Raises `InvalidName`; `BackendUnavailable`; `ConfigurationError` for another *kind*, and where the
        lock service does not show it.

        Example::

            print(locks.inspect("product_1").holder, locks.inspect("gateway", "semaphore").inside)
        """
        return looking.inspect(self.namespace, name, kind)

    async def ainspect(self, name: str, kind: Kind = "lock") -> LockState:
        """`inspect`, for asyncio."""
        return await asyncio.to_thread(self.inspect, name, kind)

    def list(self, before: str = "") -> Iterator[Listed]:
        """Yield what all processes have held or waited for, for longer than about three seconds.

        First locks, then semaphores, then latches, each with its kind. *before*: what the names
        begin with. Each process says of itself what it has, every few seconds; where the lock service knows
        that, it is what is so just now.
        It is read in small parts while you go through it, so it is no picture of one moment.
        Raises `BackendUnavailable`; `ConfigurationError` where the lock service does not show it.

        Example::

            for one in locks.list("product_"):
                print(one.name, "held" if one.held else "waited for", one.party)
        """
        return looking.list_locks(self.namespace, before)

    async def alist(self, before: str = "") -> AsyncIterator[Listed]:
        """`list`, for asyncio: ``async for one in locks.alist("product_")``."""
        listed = self.list(before)
        while some := await asyncio.to_thread(_some, listed):
            for one in some:
                yield one

    def request_release(self, name: str) -> bool:
        """Ask the holder of *name*, in any process, to give it back. Returns whether anybody holds it.

        Nothing is taken by force, and it does not wait. The holder sees `Grant.release_requested`, and what
        it gave as *on_release_requested* is called: at once, or within some seconds, as the page of its
        backend says. A later grant of the name knows nothing of it. Raises `InvalidName`;
        `BackendUnavailable`; `ConfigurationError` where the lock service can't do it.

        Example::

            if locks.request_release("catalogue"):
                print("An import runs, and was asked to stop.")
        """
        return self.namespace.request_release(check_name(name))

    async def arequest_release(self, name: str) -> bool:
        """`request_release`, for asyncio. One that is cancelled may have asked, or may still ask."""
        return await asyncio.to_thread(self.request_release, name)

    def close(self) -> None:
        """Give everything back and drop threads and connections. The client may be used again."""
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
