"""The part of one request in the transaction of a batch: its thread has the connection, and a savepoint.

What fails is rolled back to the savepoint, alone. What leaves no transaction to go on with breaks the batch
off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from distlock.errors import BatchFailed, ConfigurationError, OutcomeUnknown
from distlock.fence.trouble import ends_transaction, is_broken
from distlock.web.batch import Batch, Hooks, unknown
from distlock.web.batch_statements import END_OF_PART, PART, refuse_committing
from django_distlock import private
from django_distlock.guarding.leftovers import (
    forget_rollback,
    left_open,
    refuse_closed,
    refuse_failed,
    refuse_left,
    roll_back,
)


@contextmanager
def part(batch: Batch[Any], using: str, names: Sequence[str]) -> Iterator[Hooks]:
    """The block is one request's part of *batch*. Gives the ``on_commit`` hooks that it leaves."""
    connection = batch.carried
    own = connections[using]
    hooks: Hooks = []
    watch = _Watch(batch)
    before = private.put_commit_hooks(connection, [])
    wrappers = private.wrappers_of(connection)
    shared = wrappers[:]
    # The site's wrappers around the statements of this thread apply to these, too.
    wrappers += [*watch.wrappers, *([] if own is connection else private.wrappers_of(own))]
    connections[using] = connection
    block = transaction.atomic(using=using)
    problem: BaseException | None = None
    try:
        with block:
            try:
                yield hooks
                if private.end_blocks_inside(connection, block, ConfigurationError()):
                    raise left_open(names, using)
                refuse_left(names, roll_back(but=connection))
                refuse_closed([using])
                refuse_failed([using])
                watch.is_over = True
            except BaseException as error:
                private.end_blocks_inside(connection, block, error)
                raise
            left = private.put_commit_hooks(connection, [])
            if not private.is_marked(connection):
                hooks += left
    except BaseException as error:
        problem = error
        hooks.clear()
        raise
    finally:
        forget_rollback(connection)
        wrappers[:] = shared
        private.put_commit_hooks(connection, before)
        connections[using] = own
        if private.is_marked(connection) or is_broken(connection.connection):
            why = _why_broken(batch, problem, watch)
            batch.break_off(why)
            if isinstance(why, OutcomeUnknown) and isinstance(problem, Exception):
                raise why from problem


class _Watch:
    """Is around the statements of one part."""

    def __init__(self, batch: Batch[Any]) -> None:
        vendor = batch.carried.vendor
        # SQLite can't be asked for what is deferred without a look at whole tables.
        around = {"mysql": self._see_end, "postgresql": self._share_savepoint}
        self.wrappers = [around[vendor]] if vendor in around else []
        self._batch = batch
        #: Django's name of its savepoint.
        self._savepoint: str | None = None
        #: How MySQL or MariaDB has ended the transaction.
        self.ended: Exception | None = None
        #: The next statement ends the savepoint.
        self.is_over = False

    def _see_end(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        refuse_committing(sql)
        try:
            return execute(sql, *arguments)
        except Exception as error:
            if ends_transaction(error):
                self.ended = error
            raise

    def _share_savepoint(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        """Its savepoint is made by the end of the part before, if there was one.

        What is checked at COMMIT is checked at the end: it fails this request, and not all of them.
        """
        if self._savepoint is None:
            self._savepoint = sql.removeprefix("SAVEPOINT ")
            if self._batch.prepared:
                self._batch.prepared = False
                return None
        if not sql.endswith(f"SAVEPOINT {self._savepoint}"):
            return execute(sql, *arguments)
        if not self.is_over or sql.startswith("ROLLBACK"):
            return execute(f"{sql.removesuffix(self._savepoint)}{PART}", *arguments)
        # Where it fails, the savepoint is rolled back, and then released.
        self.is_over = False
        ended = execute(END_OF_PART, *arguments)
        self._batch.prepared = True
        return ended


def _why_broken(batch: Batch[Any], problem: BaseException | None, watch: _Watch) -> Exception:
    connection = batch.carried
    shown = ", ".join(map(repr, batch.grant.names))
    if private.was_closed_inside(connection):
        return BatchFailed(
            f"A request that shared a transaction under the lock {shown} has closed its connection."
        )
    if watch.ended is not None:
        return BatchFailed(
            f"The database has rolled back what requests for the lock {shown} shared: {watch.ended}"
        )
    if is_broken(connection.connection):
        return BatchFailed(f"The connection that requests for the lock {shown} shared is broken: {problem}")
    return unknown(batch.grant, problem)
