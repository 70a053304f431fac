"""A lock for use in ``with``, as `threading.Lock`, over one name or several."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Never

from distlock.current import held
from distlock.errors import LockTimeout, NotHeld
from distlock.grant import Grant
from distlock.owner import Owner, current_owner
from distlock.steps import Gate, Steps, TaskGate, ThreadGate, arun, run

if TYPE_CHECKING:
    from distlock.locks import Locks


class Lock:
    """What `Locks.lock` returns. Cheap; make one wherever you need it; threads and tasks may share it."""

    def __init__(self, locks: Locks, names: tuple[str, ...], timeout: float | None, ttl: float) -> None:
        self._locks = locks
        self.names = names
        self._timeout = timeout
        self._ttl = ttl
        #: Grants that came from this object and are out, with who got them: for `release` and ``with``.
        self._out: list[tuple[Owner, Grant]] = []
        #: Those of the ``with`` blocks that are being run.
        self._entered: list[Grant] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))}>"

    def __call__(self, *_: object, **__: object) -> Never:
        names = ", ".join(map(repr, self.names))
        raise TypeError(
            f"A lock is no decorator: write 'with locks.lock({names}):' inside of the function, or "
            f"@distributed_lock({names}) above it, from django_distlock or flask_distlock."
        )

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """Wait for the lock. Returns the grant, or None if somebody else kept it.

        *timeout*: seconds to wait; None: the configured time-out; -1: no limit. With *blocking* False it is
        tried once. Raises `TooManyWaiters`, `BackendUnavailable`; ValueError and OverflowError as
        `threading.Lock` does.
        """
        seconds = self._seconds(blocking, timeout)
        return self._note(run(self._steps(ThreadGate(), seconds)))

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """`acquire`, for asyncio."""
        seconds = self._seconds(blocking, timeout)
        return self._note(await arun(self._steps(TaskGate(), seconds)))

    def release(self) -> None:
        """Release what `acquire` of this object granted: the caller's latest grant, else the oldest one.

        Any thread may call it. Raises `NotHeld` if nothing is out.
        """
        self._take_back().release()

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        await self._take_back().arelease()

    def locked(self) -> bool:
        """Whether anybody holds one of the names just now, here or elsewhere. Asks the service."""
        return any(self._locks._locked(name) for name in self.names)

    def owned(self) -> bool:
        """Whether a grant that came from this object is out, and not lost. Asks nobody."""
        return any(not grant.released and not grant.lost for _, grant in self._out)

    def __enter__(self) -> Grant:
        grant = self.acquire()
        if grant is None and _in_event_loop():
            raise LockTimeout(
                f"{self._timed_out()} This 'with' kept the event loop waiting, and so every task in it, "
                "also one that may hold the lock: write 'async with'."
            )
        self._entered.append(grant := self._granted(grant))
        return grant

    def __exit__(self, *exc_info: object) -> None:
        if (grant := self._leaving()) is not None:
            grant.release()

    async def __aenter__(self) -> Grant:
        self._entered.append(grant := self._granted(await self.aacquire()))
        return grant

    async def __aexit__(self, *exc_info: object) -> None:
        if (grant := self._leaving()) is not None:
            await grant.arelease()

    def _granted(self, grant: Grant | None) -> Grant:
        if grant is None:
            raise self._timed_out()
        return grant

    def _timed_out(self) -> LockTimeout:
        names = ", ".join(map(repr, self.names))
        for one in held():
            if self._locks.is_place_of(one.client) and not set(self.names).isdisjoint(one.grant.names):
                return LockTimeout(
                    f"The lock {names} was still held after {self._default_timeout():g} seconds, by the "
                    "guard around this very code, which waits for itself: leave this lock out, the guard's "
                    "holds."
                )
        return LockTimeout(
            f"The lock {names} was still held by somebody else after {self._default_timeout():g} seconds. "
            "Try again later, or raise the time-out."
        )

    def _default_timeout(self) -> float:
        return self._locks.timeout if self._timeout is None else self._timeout

    def _seconds(self, blocking: bool, timeout: float | None) -> float:
        if not blocking:
            if timeout is not None and timeout != -1:
                raise ValueError("can't specify a timeout for a non-blocking call")
            return 0.0
        seconds = self._default_timeout() if timeout is None else timeout
        if seconds == -1:
            return math.inf
        return check_timeout(seconds)

    def _steps(self, gate: Gate, seconds: float) -> Steps[Grant | None]:
        grant = yield from self._locks._acquire(self.names, gate, seconds, self._ttl)
        if grant is not None:
            grant.timeout = self._default_timeout()
        return grant

    def _note(self, grant: Grant | None) -> Grant | None:
        if grant is not None:
            with self._locks._engine.books:
                # Grants that were released by themselves need not be remembered.
                self._out = [out for out in self._out if not out[1].released]
                self._out.append((current_owner(), grant))
        return grant

    def _own(self) -> Grant | None:
        """Take the caller's latest grant out of the books."""
        owner = current_owner()
        with self._locks._engine.books:
            self._out = [out for out in self._out if not out[1].released]
            for index in reversed(range(len(self._out))):
                if self._out[index][0] == owner:
                    return self._out.pop(index)[1]
        return None

    def _leaving(self) -> Grant | None:
        """What the end of a ``with`` block gives back; None where the body has done so."""
        own = self._own()
        with self._locks._engine.books:
            for grant in self._entered:
                if grant is own or grant.released:
                    self._entered.remove(grant)
                    return own
            # Frameworks leave a block in another thread or task than they entered it, where it is in a
            # generator: a fixture, a dependency.
            return own or (self._entered.pop(0) if self._entered else None)

    def _take_back(self) -> Grant:
        grant = self._own()
        if grant is None:
            with self._locks._engine.books:
                if self._out:
                    return self._out.pop(0)[1]
            names = ", ".join(map(repr, self.names))
            raise NotHeld(f"The lock {names} was to be released, but this object does not hold it.")
        return grant


def check_timeout(seconds: float) -> float:
    """Return *seconds* if one can wait for them. The errors are those of `threading.Lock`."""
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("timeout value must be a non-negative number")
    if seconds > threading.TIMEOUT_MAX and seconds != math.inf:
        raise OverflowError("timeout value is too large")
    return float(seconds)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
