"""Batches in Django: the threads of several requests use one connection in turn, with a savepoint each.

Views stay in their threads, with their language, time zone and thread-locals. Their ``on_commit`` hooks run
there, too, after the shared COMMIT. See `distlock.web.batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db import connections, transaction
from django.db.transaction import Atomic

from distlock.errors import BatchFailed, ConfigurationError, LockLost, OutcomeUnknown
from distlock.fence.trouble import ends_transaction, is_broken, says_not_committed
from distlock.grants.grant import Grant
from distlock.web import guard
from distlock.web.batch import END_OF_PART, PART, Batch, BatchSeat, CleanUp, Hooks, refuse_committing, unknown
from distlock.web.guard_marks import Guarded
from distlock.web.guard_options import no_stream, one_database, one_name
from distlock.web.observer import Observer
from distlock.web.settings.clients import GuardTerms
from django_distlock import private
from django_distlock.fresh.session import GuardedSession
from django_distlock.guarding import open_transactions
from django_distlock.guarding.atomic_requests import SyncTransactions
from django_distlock.guarding.fence import later_transactions
from django_distlock.private import makes_content_later


def run_in_batch(
    guarded: Guarded,
    terms: GuardTerms,
    names: Sequence[str],
    body: Callable[[], Any],
    transactions: SyncTransactions,
    session: GuardedSession | None,
    observer: Observer | None,
) -> Any:
    """Run a call as `distlock.web.guard.run` does, but let it share its transaction with other calls.

    Raises `ConfigurationError` unless the call has one name, and transactions in one database.
    """
    options = guarded.options
    assert options.batch is not None
    if len(set(names)) != 1:
        raise one_name(guarded.where, names)
    databases = transactions.databases(terms.fenced_in)
    if len(databases) != 1:
        raise one_database(guarded.where, databases)
    seat = BatchSeat((guarded.where, databases[0]))

    def whole() -> Any:
        try:
            result = body()
        except RuntimeError as error:
            _refuse_durable(guarded.where, error)
            raise
        if makes_content_later(result):
            raise no_stream(guarded.where)
        return result

    try:
        return guard.run(
            terms.client,
            names,
            whole,
            BatchTransactions(transactions, databases[0], seat, options.batch, session),
            timeout=options.timeout,
            terms=replace(terms.lock, seat=seat),
            fenced_in=terms.fenced_in,
            standby=terms.standby,
            observer=observer,
            companion=session,
        )
    finally:
        # Let the other members answer. If this call was interrupted before its part, let the next part begin.
        seat.end()


@dataclass(slots=True, eq=False)
class BatchTransactions:
    """The transactions of one call that may join a batch of at most *most* calls. *seat* is its place there.

    *inner*: the transactions that the call has outside a batch, all in the database *using*. *session*: the
    request's session, if it is read again and saved under the lock.
    """

    inner: SyncTransactions
    using: str
    seat: BatchSeat
    most: int
    session: GuardedSession | None = None

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        self.inner.refuse_open(names, nested)

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Callable[[], float]) -> Iterator[bool]:
        taken_along = self.seat.batch
        if isinstance(taken_along, Batch):
            yield from self._take_part(taken_along, grant, fenced_in)
        else:
            yield from self._lead(grant, fenced_in, left)

    def _lead(self, grant: Grant, fenced_in: str | None, left: Callable[[], float]) -> Iterator[bool]:
        batch: Batch[Any] | None = None
        mine: Exception | None = None
        stack = ExitStack()
        try:
            with stack:
                commits = stack.enter_context(self.inner.begin(grant, fenced_in, left))
                if not grant._is_followed():
                    # No other call waits to share the transaction, so this one needs no savepoint.
                    yield commits
                    return
                connection = connections[self.using]
                batch = Batch(grant, connection, self.most)
                hooks: Hooks = []
                connection.inc_thread_sharing()
                stack.callback(connection.dec_thread_sharing)
                try:
                    with self._with_session(batch), part(batch, self.using, grant.names) as hooks:
                        yield True
                except Exception as error:
                    mine = error
                batch.finish_parts(partial(_leave, connection, stack))
                if hooks or batch.is_needed_after_commit:
                    # `committed` runs first, because the other calls wait only for the COMMIT.
                    private.put_commit_hooks(connection, [private.commit_hook(batch.committed), *hooks])
        except BaseException as error:
            if batch is None:
                raise
            found = batch.failed(error, says_not_committed)
            if self.session is not None:
                self.session.note_batch_failed()
            batch.wait_for_others()
            raise (mine or found) from None
        self.seat.committed_batch = batch
        batch.wait_for_others()
        if mine is not None:
            raise mine

    def _take_part(self, batch: Batch[Any], grant: Grant, fenced_in: str | None) -> Iterator[bool]:
        hooks: Hooks = []
        stays = False
        mine: Exception | None = None
        try:
            batch.add_member(grant)
            try:
                with self._with_session(batch), part(batch, self.using, grant.names) as hooks:
                    yield True
            except Exception as error:
                if not self._waits_with_session():
                    raise
                mine = error
            if stays := bool(hooks) or self._waits_with_session():
                batch.stay()
        finally:
            self.seat.leave(grant)
        try:
            batch.wait(self.seat)
            if self.session is not None and self.session.is_pending:
                self.session.save_left()
            if hooks:
                with later_transactions(batch.grant, fenced_in) if fenced_in else nullcontext():
                    private.run_commit_hooks(connections[self.using], hooks)
                open_transactions.refuse_left(grant.names, open_transactions.roll_back())
        finally:
            if stays:
                open_transactions.roll_back()
                batch.stayed()
        if mine is not None:
            raise mine

    @contextmanager
    def _with_session(self, batch: Batch[Any]) -> Iterator[None]:
        """Let the session take part in *batch* while the block runs a part and its savepoint."""
        session = self.session
        if session is None:
            yield
            return
        session.batch = batch
        try:
            yield
        except BaseException as error:
            session.end_part(error)
            raise
        session.end_part(None)

    def _waits_with_session(self) -> bool:
        """Return whether the session of the part, which is over, is saved after the COMMIT of the batch."""
        return self.session is not None and self.session.is_pending


def _leave(connection: Any, stack: ExitStack) -> CleanUp:
    """Take *connection* out of this thread: another thread still uses it.

    Return a function for that thread, which rolls back by ending *stack*, and closes the connection.
    """
    using, rest = connection.alias, stack.pop_all()
    del connections[using]
    # The connection never comes back to the thread that opened it.
    connection.inc_thread_sharing()

    def clean_up() -> None:
        own = connections[using]
        connections[using] = connection
        error = LockLost("The batch was given up.")
        try:
            rest.__exit__(LockLost, error, None)
        finally:
            connections[using] = own
            connection.close()

    return clean_up


@contextmanager
def part(batch: Batch[Any], using: str, names: Sequence[str]) -> Iterator[Hooks]:
    """Run the block as one request's part of *batch*, on the connection that the batch carries.

    Yield the list that gets the part's ``on_commit`` hooks. They run after the COMMIT of the batch.
    """
    connection = batch.carried
    own = connections[using]
    hooks: Hooks = []
    watch = _Watch(batch)
    before = private.put_commit_hooks(connection, [])
    wrappers = private.wrappers_of(connection)
    shared = wrappers[:]
    # The site may have added execute wrappers to this thread's own connection.
    wrappers += [*watch.wrappers, *([] if own is connection else private.wrappers_of(own))]
    connections[using] = connection
    block = transaction.atomic(using=using)
    problem: BaseException | None = None
    try:
        with block:
            try:
                yield hooks
                if private.end_blocks_inside(connection, block, ConfigurationError()):
                    open_transactions.refuse_left(names, using)
                open_transactions.refuse_left(names, open_transactions.roll_back(but=connection))
                open_transactions.refuse_closed([using])
                open_transactions.refuse_failed([using])
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
        open_transactions.forget_rollback(connection)
        wrappers[:] = shared
        private.put_commit_hooks(connection, before)
        connections[using] = own
        if private.is_marked(connection) or is_broken(connection.connection):
            why = _why_broken(batch, problem, watch)
            batch.break_off(why)
            if isinstance(why, OutcomeUnknown) and isinstance(problem, Exception):
                raise why from problem


class _Watch:
    """The execute wrapper around the statements of one part, if its database needs one."""

    def __init__(self, batch: Batch[Any]) -> None:
        vendor = batch.carried.vendor
        # SQLite has no statement that checks deferred constraints without reading whole tables.
        around = {"mysql": self._see_end, "postgresql": self._share_savepoint}
        self.wrappers = [around[vendor]] if vendor in around else []
        self._batch = batch
        #: Django's name of the part's savepoint; None before its SAVEPOINT.
        self._savepoint: str | None = None
        #: The error with which MySQL or MariaDB ended the transaction, or None.
        self.ended: Exception | None = None
        #: Whether the part is over, so that the next statement ends its savepoint.
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
        """Execute *sql*, but let one message end the savepoint of a part and begin that of the next part.

        The message also checks deferred constraints. If they fail, only this part fails, not the batch.
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
        # Set it first: if the statement fails, Django rolls the savepoint back and then releases it.
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


def _refuse_durable(where: str, error: RuntimeError) -> None:
    """Raise `ConfigurationError` if *error* is Django's error for ``durable=True`` in the view *where*."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None and traceback.tb_frame.f_code is Atomic.__enter__.__code__:
        raise ConfigurationError(
            f"{where} has batch=, and begins a transaction with durable=True, whose COMMIT is that of all "
            "requests of the batch. Write transaction.atomic() without it, or leave batch= out."
        ) from error
