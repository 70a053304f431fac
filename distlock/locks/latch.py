"""A latch: callers wait until other callers have counted it down to 0, as with Java's ``CountDownLatch``."""

from __future__ import annotations

import hashlib
import itertools
import math
import secrets
from collections.abc import Callable
from typing import Any

from distlock import clock
from distlock.backends.latches import LatchState
from distlock.engine.sans_io import Call, Commands, Park, Parker, TaskParker, ThreadParker, arun, run
from distlock.errors import BackendUnavailable, ConfigurationError, LatchNotFound
from distlock.locks.latch_waits import LatchGone, LatchWaits
from distlock.numbers import check_count, check_timeout
from distlock.terms import calling_code

#: The largest count of a latch.
_MOST_COUNTS = 1_000_000_000
#: Seconds between two attempts at a call that got no answer.
_AGAIN = 0.1
#: Seconds for which a call without an answer is repeated if the latch has no time-out.
_PATIENCE = 5.0


class Latch:
    """A latch of `Locks.latch`.

    It is cheap: make one wherever you need it. Threads and tasks may share it.
    """

    def __init__(
        self, waits: LatchWaits, prefix: str, name: str, total: int | None, ttl: float, timeout: float
    ) -> None:
        """*total*: the count; None: other code makes the latch. *ttl*, *timeout*: seconds; -1: no limit."""
        self._waits = waits
        self._latches = waits.latches
        # No lock has such a key, because no prefix has a slash.
        self._key = f"{prefix}/latch:{name}"
        self.name = name
        self.total = total
        self.ttl = ttl
        self.timeout = timeout
        self._where = calling_code()

    def __repr__(self) -> str:
        return f"<Latch {self.name!r}>"

    def make(self) -> bool:
        """Make the latch, unless it exists. Returns whether this call has made it.

        Raises `ConfigurationError` if the latch exists with another count, or if this object has no count;
        `BackendUnavailable`. A call that raised may be repeated. A call whose answer was lost repeats itself:
        if the latch was deleted meanwhile, or its ttl is over, that makes the latch again. Example::

            locks.latch("import_7", 3, ttl=600).make()
        """
        return run(self._make(ThreadParker()))

    async def amake(self) -> bool:
        """`make`, for asyncio."""
        return await arun(self._make(TaskParker()))

    def count_down(self, by: int = 1, part: str | None = None) -> int:
        """Count down. Returns the remaining count, which is never less than 0.

        *by*: by how much, 1 or more. *part*: a name for the work that is done, for callers that may report it
        twice, such as a task that is repeated after a crash. The same part counts once, with the *by* of the
        first call. None: each call counts.

        The call first looks up which latch exists, and counts down only that one. So a repetition after a
        lost answer never counts down a later latch of the same name.

        Raises `LatchNotFound`; `ConfigurationError` for an invalid *by*, or if the latch was made with
        another count; TypeError for a *part* that is no text; `BackendUnavailable` if the lock service did
        not answer within the latch's time-out (5 seconds if it has none). Then it is unknown whether the call
        has counted; with a *part* you may repeat it. Example::

            left = locks.latch("import_7").count_down(part="products.csv")
        """
        return run(self._count_down(ThreadParker(), by, part))

    async def acount_down(self, by: int = 1, part: str | None = None) -> int:
        """`count_down`, for asyncio."""
        return await arun(self._count_down(TaskParker(), by, part))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open. Returns False if it does not open within *timeout* seconds.

        *timeout*: 0: look once. -1: wait until the latch opens or is gone. None: the latch's. Raises
        `LatchNotFound` if there is no latch, or it is deleted or expires during the wait, which never counts
        as open; `ConfigurationError` if it was made with another count; `BackendUnavailable` if the lock
        service is away when the wait begins or ends, or when the latch ends; TypeError, ValueError or
        OverflowError for an invalid *timeout*. Example::

            if not locks.latch("import_7").wait(600):
                raise TimeoutError("The import takes too long.")
        """
        return run(self._wait(ThreadParker(), timeout))

    async def await_(self, timeout: float | None = None) -> bool:
        """`wait`, for asyncio."""
        return await arun(self._wait(TaskParker(), timeout))

    def delete(self) -> bool:
        """Delete the latch, open or not, before its ttl is over.

        Callers that wait for the latch, now or later, get `LatchNotFound`: delete it when all of them have
        passed. The call first looks up which latch exists, and never deletes a later one. Returns whether
        this call has deleted the latch. After a lost answer it may return False although it has. Raises
        `BackendUnavailable`; then the call may be repeated. Example::

            locks.latch("import_7").delete()
        """
        return run(self._delete(ThreadParker()))

    async def adelete(self) -> bool:
        """`delete`, for asyncio."""
        return await arun(self._delete(TaskParker()))

    def count(self) -> int:
        """Return the remaining count; 0 if the latch is open.

        Raises `LatchNotFound`; `BackendUnavailable`; `ConfigurationError` if it was made with another count.
        """
        return run(self._count()).left

    async def acount(self) -> int:
        """`count`, for asyncio."""
        return (await arun(self._count())).left

    def _make(self, parker: Parker) -> Commands[bool]:
        if self.total is None:
            raise ConfigurationError(
                f"The latch {self.name!r} can't be made: nobody said with which count. Write "
                f"locks.latch({self.name!r}, 3).make()."
            )
        token, attempts, until = secrets.token_hex(16), itertools.count(1), self._until()

        def make() -> Call:
            # Each attempt has its own maker: the latch of an earlier attempt may be gone, and a second latch
            # of the same maker would pass for the first.
            maker = f"{token}-{next(attempts)}"
            return Call(self._latches.make_latch, self._key, self.total, self.ttl, maker, until=until)

        state = yield from self._insist(parker, make, until)
        return self._checked(state).maker.startswith(token)

    def _count_down(self, parker: Parker, by: int, part: str | None) -> Commands[int]:
        check_count("by", by)
        known = secrets.token_hex(16) if part is None else _digest(part)
        until, count = self._until(), self._latches.count_latch_down
        life = self._checked((yield from self._find(parker, until))).life
        state = yield from self._insist(
            parker, lambda: Call(count, self._key, by, known, life, until=until), until
        )
        if state is None:
            raise LatchNotFound(
                f"The latch {self.name!r} was deleted, or its ttl was over, while it was being counted down: "
                "whether it was counted before is not known. A later latch of that name was not."
            )
        return self._checked(state).left

    def _delete(self, parker: Parker) -> Commands[bool]:
        until, delete = self._until(), self._latches.delete_latch
        if (found := (yield from self._find(parker, until))) is None:
            return False
        return bool(
            (yield from self._insist(parker, lambda: Call(delete, self._key, found.life, until=until), until))
        )

    def _find(self, parker: Parker, until: float) -> Commands[LatchState | None]:
        """Return the state of the latch that exists now, else None. The caller changes no later latch."""
        look = self._latches.look_at_latches
        (state,) = yield from self._insist(parker, lambda: Call(look, [self._key], False, until=until), until)
        return state  # type: ignore[no-any-return]

    def _wait(self, parker: Parker, timeout: float | None) -> Commands[bool]:
        seconds = self.timeout if timeout is None else timeout
        seconds = math.inf if seconds == -1 else check_timeout(seconds)
        if not seconds:
            state = yield from self._count()
            return not state.left
        try:
            opened = yield from self._waits.wait(self._key, parker, clock.now() + seconds, self._where)
        except LatchGone:
            raise self._not_found() from None
        return opened is not None and not self._checked(opened).left

    def _count(self) -> Commands[LatchState]:
        (state,) = yield Call(self._latches.look_at_latches, [self._key], False, until=math.inf)
        return self._checked(state)

    def _until(self) -> float:
        return clock.now() + (_PATIENCE if self.timeout == -1 else max(self.timeout, _AGAIN))

    def _insist(self, parker: Parker, attempt: Callable[[], Call], until: float) -> Commands[Any]:
        """Repeat the call that *attempt* returns until it is answered. Raise its error after *until*."""
        while True:
            try:
                answer = yield attempt()
            except BackendUnavailable:
                if clock.now() + _AGAIN >= until:
                    raise
                yield Park(parker, _AGAIN)
            else:
                return answer

    def _checked(self, state: LatchState | None) -> LatchState:
        if state is None:
            raise self._not_found()
        if self.total is not None and self.total != state.total:
            raise ConfigurationError(
                f"The latch {self.name!r} was made with a count of {state.total}, and here it has one of "
                f"{self.total}. Write the same everywhere; a new latch under that name can be made when the "
                f"old one is gone, which is {state.ttl:.0f} s after its last count, or take another name."
            )
        return state

    def _not_found(self) -> LatchNotFound:
        return LatchNotFound(
            f"There is no latch {self.name!r}: nobody has made it (locks.latch({self.name!r}, 3).make()), or "
            "it was deleted, or its ttl is over since it was made or last counted down. That does not say "
            "whether all is done."
        )


def check_total(count: object) -> int:
    """Return *count* if it is a whole number from 0 to `_MOST_COUNTS`, else raise `ConfigurationError`."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_COUNTS:
        raise ConfigurationError(f"count={count!r} has to be a whole number, 0 or more.")
    return count


def _digest(part: str) -> str:
    """Return a digest of *part*, so that the lock service gets text of a fixed length, whatever a user sends.

    Raises TypeError if *part* is no text.
    """
    if not isinstance(part, str):
        raise TypeError(f"A part is a str, not {type(part).__name__}: write str(value).")
    return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
