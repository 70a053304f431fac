"""``ATOMIC_REQUESTS``, moved inside the lock.

Django opens its transaction around the whole decorated view, so a plain decorator lets go before COMMIT and
the next request reads what is about to be overwritten. A view that we guard is marked so that Django opens
nothing, and its transactions are opened here, after the lock and before the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections, transaction

from distlock.errors import ConfigurationError


class EveryAlias(set[str]):
    """Tells Django's `make_view_atomic` that no alias is to be made atomic.

    As a set it holds those that the site itself opted out with `non_atomic_requests`, above or below us.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Whether the site said ``@transaction.non_atomic_requests`` for *alias*."""
        return super().__contains__(alias)


def take_over(wrapper: Callable[..., Any], view: Callable[..., Any]) -> EveryAlias:
    """Mark *wrapper* so that Django leaves the transactions of *view* to us."""
    # `wraps` has copied the very set of the view: `add` on it must not reach the view's other users.
    every = EveryAlias(getattr(view, "_non_atomic_requests", ()))
    wrapper._non_atomic_requests = every  # type: ignore[attr-defined]
    return every


class ViewTransactions:
    """The transactions of a view: those that Django would have opened."""

    def __init__(self, every: EveryAlias, where: str) -> None:
        self._every = every
        self._where = where

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        refuse_open(self._where, names, nested)

    @contextmanager
    def begin(self) -> Iterator[bool]:
        # durable: what is committed at the end of this block is committed for good.
        with ExitStack() as stack:
            aliases = self._aliases()
            for alias in aliases:
                stack.enter_context(transaction.atomic(using=alias, durable=True))
            yield bool(aliases)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """For a request that is not locked: just what Django would have done."""
        with ExitStack() as stack:
            for alias in self._aliases():
                stack.enter_context(transaction.atomic(using=alias))
            yield

    def _aliases(self) -> list[str]:
        return [
            alias
            for alias, settings in connections.settings.items()
            if settings["ATOMIC_REQUESTS"] and not self._every.opted_out(alias)
        ]


class NoTransactions:
    """A plain function: it opens its own, and commits them before it returns."""

    def __init__(self, where: str) -> None:
        self._where = where

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        refuse_open(self._where, names, nested)

    @contextmanager
    def begin(self) -> Iterator[bool]:
        yield False


def refuse_open(where: str, names: Sequence[str], nested: bool) -> None:
    """Raise `ConfigurationError` if a transaction is open: it would be committed after the release.

    The transactions that `TestCase` opens around a test don't count.
    """
    for connection in connections.all(initialized_only=True):
        # Django's own test for durable blocks; the stubs don't know the attribute.
        blocks: list[Any] = connection.atomic_blocks
        if blocks and not blocks[-1]._from_testcase:
            raise ConfigurationError(_message(where, connection.alias, names, nested))
        manual = connection.connection is not None and not connection.in_atomic_block
        if manual and not connection.autocommit:
            raise ConfigurationError(
                f"{where} would be locked on {_shown(names)} while autocommit is off on the database "
                f"{connection.alias!r}: nobody knows when that is committed. Use transaction.atomic()."
            )


def _message(where: str, alias: str, names: Sequence[str], nested: bool) -> str:
    problem = (
        f"{where} would be locked on {_shown(names)} inside a transaction of the database {alias!r} that is "
        "already open, and let go before its COMMIT: another server would read what is about to change."
    )
    if nested:
        return (
            f"{problem} The guard around it opened it: name all locks in one place, "
            f"@distributed_lock(…, {_shown(names)}), on the outer function."
        )
    return (
        f"{problem} Put @distributed_lock above @transaction.atomic, on the view itself instead of a "
        "function or method that the view calls; for a class-based view write "
        '@method_decorator(distributed_lock(…), name="dispatch"). Decorators between it and the URL need '
        "functools.wraps."
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
