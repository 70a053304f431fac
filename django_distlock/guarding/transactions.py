"""``ATOMIC_REQUESTS``, moved inside the lock.

Django opens its transaction around the whole decorated view, so a plain decorator lets go before COMMIT and
the next request reads what is about to be overwritten. A view that we guard is marked so that Django opens
nothing, and its transactions are opened here, after the lock and before the view.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from distlock.engine.steps import TaskGate
from distlock.errors import ConfigurationError
from distlock.grant import Grant
from distlock.web.caller import this_code
from django_distlock.clients.pooled import give_back
from django_distlock.clients.waits import wait_for_us, watched
from django_distlock.guarding.fence import fenced, leaving_no_unused_row
from django_distlock.guarding.leftovers import refuse_closed, refuse_failed, roll_back, rolling_back

#: What to write where a transaction is open before the lock.
ABOVE = (
    "Write @distributed_lock above whatever opens it, transaction.atomic or a decorator of your own, on the "
    "view itself and not on a function or method that it calls; for a class-based view above the class. "
    "Decorators between it and the URL need functools.wraps."
)


class EveryAlias(set[str]):
    """Tells Django's `make_view_atomic` that no alias is to be made atomic.

    As a set it holds those that the site itself opted out with `non_atomic_requests`, above or below us.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Whether the site said ``@transaction.non_atomic_requests`` for *alias*."""
        return super().__contains__(alias)

    def atomic_requests(self) -> list[str]:
        """The databases that Django would have opened a transaction on."""
        return [
            alias
            for alias, settings in connections.settings.items()
            if settings["ATOMIC_REQUESTS"] and not self.opted_out(alias)
        ]


def take_over(wrapper: Callable[..., Any], view: Callable[..., Any]) -> EveryAlias:
    """Mark *wrapper* so that Django leaves the transactions of *view* to us."""
    every: set[str] = getattr(view, "_non_atomic_requests", set())
    if not isinstance(every, EveryAlias):
        # `wraps` has copied the very set of the view: `add` on it must not reach the view's other users.
        every = EveryAlias(every)
    wrapper._non_atomic_requests = every  # type: ignore[attr-defined]
    return every


class ViewTransactions:
    """The transactions of a view: those that Django would have opened."""

    def __init__(
        self,
        every: EveryAlias,
        where: str,
        inner: Callable[..., Any] | None = None,
        line: Callable[[], str] = str,
    ) -> None:
        """*inner*: what is guarded, if it was a view by itself. *line* says what to write if one is open."""
        self._every = every
        self._where = where
        self._inner = getattr(inner, "_non_atomic_requests", ())
        self._line = line

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        if (found := find_open()) is not None:
            raise ConfigurationError(found.message(self._where, names, nested, self._line()))

    def begin(
        self, grant: Grant, fence: str | None, left: Callable[[], float]
    ) -> AbstractContextManager[bool]:
        return _begun(self._every.atomic_requests(), grant, fence, left)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """For a request that is not locked: just what Django would have done."""
        with ExitStack() as stack:
            for alias in self._every.atomic_requests():
                # Another guard further inside may be waiting to do it.
                if alias not in self._inner:
                    stack.enter_context(transaction.atomic(using=alias))
            yield


class NoTransactions:
    """A plain function: it opens its own, and commits them before it returns. A fenced one is the guard's."""

    def __init__(self, where: str, line: Callable[[], str] = str) -> None:
        """*line* says what to write where somebody else has opened one."""
        self._where = where
        self._line = line

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        if (found := find_open()) is not None:
            raise ConfigurationError(found.message(self._where, names, nested, self._line()))

    def begin(
        self, grant: Grant, fence: str | None, left: Callable[[], float]
    ) -> AbstractContextManager[bool]:
        return _begun([], grant, fence, left)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        yield


#: What opens the transactions of a call that is not async.
Opened = ViewTransactions | NoTransactions


class AsyncTransactions:
    """Async code opens its own, too: in the thread where `sync_to_async` runs all of its database work."""

    def __init__(self, where: str, thread: int, found: Open | None) -> None:
        self._where = where
        self._thread = thread
        self._open = found

    @classmethod
    async def look_around(cls, where: str) -> AsyncTransactions:
        """With what is open in that thread: connections can be asked there only.

        Pooled ones are given back there before the task waits.
        """

        def look() -> tuple[int, Open | None]:
            found = find_open()
            give_back()
            return threading.get_ident(), found

        return cls(where, *await sync_to_async(look)())

    async def finish(self) -> str | None:
        """Wait until that thread is idle, and end what is left open there. Cancellation waits, too.

        Gives the database whose transaction was open, and was rolled back.

        A client that goes away, or a time-out in the view, ends the wait for what the thread does and not the
        work itself, which would be committed after the release. A thread that waits for our own lock is not
        waited for: it does somebody else's work, for without a `ThreadSensitiveContext` all share one.
        """
        idle = asyncio.ensure_future(sync_to_async(roll_back)())
        cancelled: asyncio.CancelledError | None = None
        gate = TaskGate()
        idle.add_done_callback(lambda _: gate.wake())
        with watched(gate, self._thread):
            while not (idle.done() or wait_for_us([self._thread])):
                try:
                    await gate.wait(math.inf)
                except asyncio.CancelledError as error:
                    cancelled = error
        left = None if idle.cancel() else idle.result()
        if cancelled is not None:
            raise cancelled
        return left

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        # The event loop's own thread may have one, too, where Django lets async code use the database.
        if (found := self._open or find_open()) is not None:
            raise ConfigurationError(found.message(self._where, names, nested))

    @contextmanager
    def begin(self, grant: Grant, fence: str | None, left: Callable[[], float]) -> Iterator[bool]:
        yield False


@contextmanager
def _begun(aliases: list[str], grant: Grant, fence: str | None, left: Callable[[], float]) -> Iterator[bool]:
    # durable: what is committed at the end of this block is committed for good.
    with rolling_back(grant.names), ExitStack() as stack:
        if fence is not None:
            # The outermost one: what the others write is committed before the next grant passes the fence.
            stack.enter_context(fenced(grant, fence, left))
            stack.enter_context(leaving_no_unused_row(grant, fence))
        for alias in aliases:
            if alias != fence:
                stack.enter_context(transaction.atomic(using=alias, durable=True))
        yield fence is not None or bool(aliases)
        own = [*aliases, *filter(None, [fence])]
        refuse_closed(own)
        refuse_failed(own)


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that is open where a lock is to be taken: its COMMIT would come after the release."""

    alias: str
    #: Whether autocommit is off, so that there is always one.
    manual: bool

    def message(self, where: str, names: Sequence[str], nested: bool, line: str = "") -> str:
        shown = ", ".join(map(repr, names))
        if self.manual:
            return (
                f"{where} would be locked on {shown} while autocommit is off on the database "
                f"{self.alias!r}: nobody knows when that is committed. Use transaction.atomic()."
            )
        problem = (
            f"{where} would be locked on {shown} inside a transaction of the database {self.alias!r} that is "
            "already open, and let go before its COMMIT: another server would read what is about to change."
        )
        if nested:
            return (
                f"{problem} The guard around it opened it: name all locks in one place, "
                f"@distributed_lock(…, {shown}), on the outer function."
            )
        return f"{problem} {line or ABOVE}"


def find_open(alias: str | None = None) -> Open | None:
    """The first open transaction of this thread. Those that `TestCase` opens around a test don't count.

    *alias*: look at this database only.
    """
    for connection in connections.all(initialized_only=True):
        if alias not in {None, connection.alias}:
            continue
        # Django's own test for durable blocks; the stubs don't know the attribute.
        blocks: list[Any] = connection.atomic_blocks
        if blocks and not blocks[-1]._from_testcase:
            return Open(connection.alias, manual=False)
        manual = connection.connection is not None and not connection.in_atomic_block
        if manual and not connection.autocommit:
            return Open(connection.alias, manual=True)
    # As the settings say it, too: the connection may be opened by the view.
    for other, settings in connections.settings.items():
        if settings["AUTOCOMMIT"] or alias not in {None, other} or connections[other].in_atomic_block:
            continue
        return Open(other, manual=True)
    return None


def refuse_open(names: Sequence[str], line: str) -> None:
    """Raise `ConfigurationError` if a transaction is open around a block. *line*: what to write instead."""
    if (found := find_open()) is not None:
        raise ConfigurationError(found.message(this_code(), names, nested=False, line=line))
