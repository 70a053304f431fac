"""Opens the transactions of ``ATOMIC_REQUESTS`` inside the lock.

Django opens its transaction around the whole decorated view, so a plain decorator would release the lock
before COMMIT, and the next request would read old data. A guarded view is marked so that Django opens none.
This module opens the same transactions after the lock and before the view.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from distlock.engine.sans_io import TaskParker, arun
from distlock.errors import ConfigurationError
from distlock.grants.grant import Grant
from django_distlock.clients.idle_connections import give_back, wait_for_us, when_idle
from django_distlock.guarding import open_transactions
from django_distlock.guarding.fence import fenced, leaving_no_unused_row
from django_distlock.private import opt_out, opted_out


class OptOuts(set[str]):
    """The aliases that the site gave to `non_atomic_requests`, above or below the guard.

    ``in`` is True for every alias, so that Django's `make_view_atomic` opens no transaction around the view.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Return whether the site said ``@transaction.non_atomic_requests`` for *alias*."""
        return super().__contains__(alias)

    def atomic_requests(self) -> list[str]:
        """Return the databases in which Django would have opened a transaction."""
        found: list[str] = []
        for alias, settings in connections.settings.items():
            if settings["ATOMIC_REQUESTS"] and not self.opted_out(alias):
                found.append(alias)
        return found


def take_over(wrapper: Callable[..., Any], view: Callable[..., Any]) -> OptOuts:
    """Mark *wrapper*, a guard around *view*, so that Django opens no transaction around it. Return the mark.

    The guard opens the transactions of `OptOuts.atomic_requests` instead.
    """
    opt_outs = opted_out(view)
    if not isinstance(opt_outs, OptOuts):
        # Make a new set: functools.wraps() has given *wrapper* the set of the view, which may be used alone.
        opt_outs = OptOuts(opt_outs)
    opt_out(wrapper, opt_outs)
    return opt_outs


def opened_around(view: Callable[..., Any]) -> list[str]:
    """Return the databases on which Django opens a transaction around *view*."""
    out = opted_out(view)
    return [] if isinstance(out, OptOuts) else OptOuts(out).atomic_requests()


@functools.cache
def _sqlite() -> frozenset[str]:
    """Return the aliases of the site's SQLite databases."""
    return frozenset(connection.alias for connection in connections.all() if connection.vendor == "sqlite")


@dataclass(slots=True, eq=False)
class SyncTransactions:
    """The transactions of one sync call: those that Django would open around a view, and the fenced one.

    A plain function opens and commits its own before it returns. The guard opens only the fenced one for it.
    """

    #: The name of the called function, for messages.
    where: str
    #: The set that `take_over` made for a view; None for a plain function, and for a single method.
    opt_outs: OptOuts | None = None
    #: The function that the guard wraps, which may have a guard of its own; None: it has no guard.
    inner: Callable[..., Any] | None = None
    #: Returns the remedy for a transaction that is open already; '' for the general one.
    remedy: Callable[[], str] = str
    #: Compares under the lock what the request has read before. On SQLite, `begin` calls it before BEGIN,
    #: unless the transaction is fenced: a transaction that begins with a read, and not with the write of the
    #: fence, fails at its first write, without a wait, if another connection has written since.
    compare_first: Callable[[Grant], object] | None = None

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        if (found := open_transactions.find_open()) is not None:
            raise ConfigurationError(found.message(self.where, names, nested, self.remedy()))

    def databases(self, fenced_in: str | None) -> list[str]:
        """Return the databases where `begin` begins transactions."""
        atomic = [] if self.opt_outs is None else self.opt_outs.atomic_requests()
        return atomic if fenced_in is None or fenced_in in atomic else [*atomic, fenced_in]

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Callable[[], float]) -> Iterator[bool]:
        aliases = [] if self.opt_outs is None else self.opt_outs.atomic_requests()
        if self.compare_first is not None and fenced_in is None and not _sqlite().isdisjoint(aliases):
            self.compare_first(grant)
        try:
            if fenced_in is None and not aliases:
                yield False
            else:
                with _committed(aliases, grant, fenced_in, left):
                    yield True
        except BaseException:
            open_transactions.roll_back()
            raise
        if (alias := open_transactions.roll_back()) is not None:
            open_transactions.refuse_left(grant.names, alias)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Open the transactions that Django would have opened, for a request that is not locked."""
        with ExitStack() as stack:
            for alias in () if self.opt_outs is None else self.opt_outs.atomic_requests():
                # Another guard further inside may open this transaction.
                if alias not in opted_out(self.inner):
                    stack.enter_context(transaction.atomic(using=alias))
            yield


@dataclass(slots=True, eq=False)
class AsyncTransactions:
    """The transactions of one async call, which the call opens in its `sync_to_async` thread."""

    where: str
    #: The id of the thread in which `sync_to_async` runs queries.
    thread: int
    #: The transaction that was open in that thread, or None.
    found: open_transactions.Open | None

    @classmethod
    async def look_around(cls, where: str) -> AsyncTransactions:
        """Return an instance that knows what is open in the `sync_to_async` thread.

        Only that thread can look at its connections. It also gives pooled ones back, before the task waits.
        """

        def look() -> tuple[int, open_transactions.Open | None]:
            found = open_transactions.find_open()
            give_back()
            return threading.get_ident(), found

        return cls(where, *await sync_to_async(look)())

    async def finish(self) -> str | None:
        """Wait until the `sync_to_async` thread is idle, and roll back what is left open there.

        Return the alias of the database whose transaction was rolled back, or None. Outside of a
        `ThreadSensitiveContext` tasks may share one thread, so this may also wait for another task's work.
        """
        waits_for_us = functools.partial(wait_for_us, [self.thread])
        return await arun(when_idle(open_transactions.roll_back, TaskParker(), waits_for_us, self.thread))

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        # If DJANGO_ALLOW_ASYNC_UNSAFE is set, the event loop's thread may have an open transaction, too.
        if (found := self.found or open_transactions.find_open()) is not None:
            raise ConfigurationError(found.message(self.where, names, nested))

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Callable[[], float]) -> Iterator[bool]:
        yield False


@contextmanager
def _committed(
    aliases: list[str], grant: Grant, fenced_in: str | None, left: Callable[[], float]
) -> Iterator[None]:
    ours = [*aliases, *filter(None, [fenced_in])]
    with ExitStack() as stack:
        stack.enter_context(open_transactions.noting_rollbacks(ours))
        if fenced_in is not None:
            # The fenced one is outermost: the others are committed before the next grant passes the fence.
            stack.enter_context(fenced(grant, fenced_in, left))
            stack.enter_context(leaving_no_unused_row(grant, fenced_in))
        for alias in aliases:
            if alias != fenced_in:
                # durable=True: the end of this block is a COMMIT, not the release of a savepoint.
                stack.enter_context(transaction.atomic(using=alias, durable=True))
        yield
        open_transactions.refuse_closed(ours)
        open_transactions.refuse_failed(ours)
