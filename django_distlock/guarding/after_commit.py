"""What comes after the COMMIT of a fenced transaction, while its lock is still held: ``on_commit`` hooks.

A transaction that they begin passes the fence again. An autocommit statement is over before it could, so the
lock is looked at before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import Error, connections, transaction

from distlock.clock import now
from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.fence.passing import Begin
from distlock.fence.row import RolledBack
from distlock.fence.trouble import ends_transaction
from distlock.grants.grant import Grant
from django_distlock import private

#: Passes the fence in the transaction that the first argument begins, waiting as long as the second says.
Pass = Callable[[Begin, Callable[[], float]], object]


class LaterTransactions:
    """The later transactions of *grant* on the database *using*. Of one thread, as its connection is."""

    def __init__(self, grant: Grant, using: str, pass_fence: Pass) -> None:
        self._grant = grant
        self._using = using
        self._pass_fence = pass_fence
        self._connection: Any = connections[using]
        self._set_autocommit: Callable[..., None] = self._connection.set_autocommit
        #: Ends the watch. There is one when the first transaction is about to be committed, or was.
        self._end_watch: Callable[[], None] | None = None
        self._passing = False
        self._looked = False
        self._ended: Exception | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The block is the first transaction, and what runs at its end."""
        with self._connection.execute_wrapper(self._execute):
            try:
                yield
            finally:
                if self._end_watch is not None:
                    self._end_watch()

    def watch(self) -> None:
        """The first transaction has done its work: what begins from now on is a later one."""
        self._end_watch = private.begin_and_end_by(self._connection, self._begin_or_end)

    def _begin_or_end(self, autocommit: bool, *arguments: Any, **words: Any) -> None:
        if autocommit:
            self._set_autocommit(autocommit, *arguments, **words)
            self._refuse_ended()
        else:
            self._pass(lambda: _Begun(self._connection, self._set_autocommit, arguments, words))

    def _pass(self, begin: Begin) -> None:
        timeout = self._grant.timeout
        deadline = now() + (timeout if timeout >= 0 else math.inf)
        self._passing = True
        try:
            self._grant.check()
            self._pass_fence(begin, lambda: deadline - now())
        except ConfigurationError:
            raise
        except LockError as error:
            raise self._lost() from error
        finally:
            self._passing = False

    def _execute(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        if self._end_watch is not None and not self._passing and not self._connection.in_atomic_block:
            self._look()
        try:
            return execute(*arguments)
        except Exception as error:
            connection = self._connection
            if self._end_watch is not None and connection.in_atomic_block and connection.vendor == "mysql":
                self._note(error)
            raise

    def _note(self, error: Exception) -> None:
        if ends_transaction(error):
            # A view that catches that and goes on is in another transaction, which has passed no fence.
            private.mark(self._connection)
            self._ended = error

    def _look(self) -> None:
        """Before a statement outside of ``atomic``."""
        if not self._connection.autocommit:
            # It may be a transaction that set_autocommit(False) has begun, or one after it.
            self._pass(_Nothing)
            return
        if self._grant.held_by_transaction:
            return  # COMMIT has let its row go.
        if not self._looked:
            with transaction.atomic(using=self._using):
                self._looked = True
        try:
            self._grant.check()
        except LockError as error:
            raise self._lost() from error

    def _refuse_ended(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            raise RolledBack(self._grant.names) from ended

    def _lost(self) -> LockLost:
        names = ", ".join(map(repr, self._grant.names))
        return LockLost(
            f"The lock {names} was lost before an on_commit hook wrote to the database {self._using!r}: the "
            "hook is stopped, and what was committed before it stands. Write in the view, before its COMMIT, "
            "what belongs to it."
        )


class _Nothing(AbstractContextManager[object]):
    """A transaction that is open already."""

    def __exit__(self, *exc_info: object) -> None: ...


class _Begun(AbstractContextManager[object]):
    """A transaction that the site ends. Here it is rolled back if it does not pass the fence."""

    def __init__(
        self, connection: Any, set_autocommit: Callable[..., None], arguments: Any, words: Any
    ) -> None:
        self._connection = connection
        self._set_autocommit = set_autocommit
        self._arguments = arguments
        self._words = words

    def __enter__(self) -> None:
        self._set_autocommit(False, *self._arguments, **self._words)

    def __exit__(self, kind: object, *exc_info: object) -> None:
        if kind is None:
            return
        try:
            self._connection.rollback()
        except Error:
            self._connection.close()
        self._set_autocommit(True)
