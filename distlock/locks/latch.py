"""A latch: callers wait until others have counted it down to 0, as Java's ``CountDownLatch``."""

from __future__ import annotations

import hashlib
import itertools
import math
import secrets
from collections.abc import Callable
from typing import Any

from distlock import clock
from distlock.backends.latches import LatchState
from distlock.engine.commands import Call, Commands, Park, Parker, TaskParker, ThreadParker, arun, run
from distlock.errors import BackendUnavailable, ConfigurationError, LatchNotFound
from distlock.locks.latch_waits import LatchGone, LatchWaits
from distlock.numbers import LONG, check_count, check_timeout
from distlock.terms import calling_code

#: Seconds between two attempts at a call that got no answer.
_AGAIN = 0.1
#: How long calls are tried if the client has no time-out, seconds.
_PATIENCE = 5.0


class Latch:
    """A latch of `Locks.latch`.

    It is cheap: make one wherever you need it. Threads and tasks may share it.
    """

    def __init__(
        self, waits: LatchWaits, prefix: str, name: str, total: int | None, ttl: float, timeout: float
    ) -> None:
        """*total*: the count to make it with; None: other code makes it. *timeout*: as for `wait`."""
        self._waits = waits
        self._latches = waits.latches
        # No lock has such a key, because no prefix has a '/'.
        self._key = f"{prefix}/latch:{name}"
        self.name = name
        self.total = total
        self.ttl = ttl
        self.timeout = timeout
        self._where = calling_code()

    def __repr__(self) -> str:
        return f"<Latch {self.name!r}>"

    def make(self) -> bool:
        """Make the latch, unless it is there. Returns whether this call has made it.

        Raises `ConfigurationError` where it was made with another count, and where this object was given
        none; `BackendUnavailable`. A call that raised may be repeated. A call whose answer was lost repeats
        itself: if the latch was deleted meanwhile, or its ttl is over, it makes the latch again. Example::

            locks.latch("import_7", 3, ttl=600).make()
        """
        return run(self._make(ThreadParker()))

    async def amake(self) -> bool:
        """`make`, for asyncio."""
        return await arun(self._make(TaskParker()))

    def count_down(self, by: int = 1, part: str | None = None) -> int:
        """Count down. Returns what is left, which is never less than 0.

        *by*: by how much, 1 or more. *part*: what is done, for one that may say so twice, as a task that is
        repeated after a crash: the same part counts once, by what was said first. None: each call counts.

        It looks which latch is there first, and counts that one: where the answer is lost, and meanwhile the
        latch is deleted or its ttl over and the next made, the next is not counted.

        Raises `LatchNotFound`; `BackendUnavailable` where the lock service did not answer for as long as the
        client's time-out. Then nobody knows whether it has counted, and with a *part* it may be repeated.
        Example::

            left = locks.latch("import_7").count_down(part="products.csv")
        """
        return run(self._count_down(ThreadParker(), by, part))

    async def acount_down(self, by: int = 1, part: str | None = None) -> int:
        """`count_down`, for asyncio."""
        return await arun(self._count_down(TaskParker(), by, part))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open. False: it was not, for *timeout* seconds.

        *timeout*: 0 looks once; -1 is no limit but the life of the latch; None is the client's. Raises
        `LatchNotFound` where there is none, or it is gone meanwhile: that never counts as open. Raises
        `BackendUnavailable`; ValueError and OverflowError as `threading.Event.wait` does. Example::

            if not locks.latch("import_7").wait(600):
                raise TimeoutError("The import takes too long.")
        """
        return run(self._wait(ThreadParker(), timeout))

    async def await_(self, timeout: float | None = None) -> bool:
        """`wait`, for asyncio."""
        return await arun(self._wait(TaskParker(), timeout))

    def delete(self) -> bool:
        """Delete the latch, open or not: it is needed no longer, and shall not live for its ttl.

        Those that wait for it or come to it later get `LatchNotFound`, as for one whose ttl is over: delete
        it when all have passed. It looks which one is there first, and deletes no later one. Returns whether
        this call has deleted it; one whose answer was lost may return False although it has deleted it.
        Raises `BackendUnavailable`; the call may be repeated. Example::

            locks.latch("import_7").delete()
        """
        return run(self._delete(ThreadParker()))

    async def adelete(self) -> bool:
        """`delete`, for asyncio."""
        return await arun(self._delete(TaskParker()))

    def count(self) -> int:
        """Return the remaining count; 0 if it is open. Raises `LatchNotFound`, `BackendUnavailable`."""
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
            # Each attempt has a maker of its own: the latch that an earlier one made may be gone by now.
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
        """Return the latch that exists now, which is the one that the call is about; None: there is none."""
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
        """Repeat the call that *attempt* makes until it is answered, or until *until*."""
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
    """Return *count* if a latch can have it; 0: it is open at once. Raises `ConfigurationError`."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= LONG:
        raise ConfigurationError(f"count={count!r} has to be a whole number, 0 or more.")
    return count


def _digest(part: str) -> str:
    """Return a digest of *part*. Clients may choose *part*, and the lock service gets text of one length."""
    if not isinstance(part, str):
        raise TypeError(f"A part is a str, not {type(part).__name__}: write str(value).")
    return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
