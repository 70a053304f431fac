"""Batches in Flask: the sessions of several requests take part in one transaction, one after the other.

In a batch every session uses the same connection, whose transaction is open. A session begins a savepoint
there, and ``db.session.commit()`` in a view ends only the savepoint. See `distlock.web.batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from distlock.errors import BatchFailed, ConfigurationError, LockLost, OutcomeUnknown
from distlock.fence.transaction import begin_fenced
from distlock.fence.trouble import ends_transaction, says_not_committed
from distlock.grants.grant import Grant
from distlock.web.batch import CHECK_DEFERRED, Batch, BatchSeat, CleanUp, refuse_committing, unknown
from flask_distlock.sql.changes import shared_connection
from flask_distlock.sql.fenced_sessions import FenceConnection, Left, begun, table_remedy, watch
from flask_distlock.sql.sessions import SessionTransactions


@dataclass(slots=True)
class _Carried:
    """What the members of a batch pass to each other."""

    connection: Connection
    transaction: RootTransaction


@dataclass
class SessionBatchTransactions(SessionTransactions):
    """The transactions of one call that may be part of a batch.

    The batch is committed before the call ends, so no request has to keep its lock.
    """

    seat: BatchSeat
    #: The most calls in a batch.
    most: int

    def __post_init__(self) -> None:
        let_join(self.sessions.session, self.where)

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Left) -> Iterator[bool]:
        taken_along = self.seat.batch
        if isinstance(taken_along, Batch):
            yield from self._take_part(taken_along, grant)
        else:
            # Begin a batch even for a single call, so that commit() in the view ends only a savepoint, too.
            assert fenced_in is not None
            yield from self._lead(grant, fenced_in, left)

    def _lead(self, grant: Grant, fenced_in: str, left: Left) -> Iterator[bool]:
        batch: Batch[_Carried] | None = None
        mine: Exception | None = None
        engine = self.engine_of(fenced_in)
        row = FenceConnection(engine)
        try:
            begin = partial(begun, engine, row)
            with begin_fenced(begin, row, grant, left, table_remedy(fenced_in)) as stack:
                assert row.open is not None
                transaction = row.open.get_transaction()
                assert transaction is not None
                batch = Batch(grant, _Carried(row.open, transaction), self.most)
                _watch_statements(row.open)
                try:
                    with self._part(batch, grant):
                        yield True
                except Exception as error:
                    mine = error
                batch.finish_parts(partial(_leave, stack))
        except BaseException as error:
            if batch is None:
                raise
            raise (mine or batch.failed(error, says_not_committed)) from None
        self.seat.committed_batch = batch
        if mine is not None:
            raise mine

    def _take_part(self, batch: Batch[_Carried], grant: Grant) -> Iterator[bool]:
        try:
            batch.add_member(grant)
            with self._part(batch, grant):
                yield True
        finally:
            self.seat.leave(grant)
        batch.wait(self.seat)

    @contextmanager
    def _part(self, batch: Batch[_Carried], grant: Grant) -> Iterator[None]:
        connection = batch.carried.connection
        problem: BaseException | None = None
        ended: list[BaseException] = []
        watch(connection, ended.append)
        # Whether the transaction can go on with the next part.
        sound = False
        try:
            savepoint = connection.begin_nested()
            try:
                with joined(connection), self.ending_all(grant):
                    yield
                if connection.dialect.name == "postgresql":
                    _check_deferred(connection)
            except BaseException:
                savepoint.rollback()
                sound = True
                raise
            savepoint.commit()
            sound = True
        except BaseException as error:
            problem = error
            raise
        finally:
            if not sound or ended or _is_over(batch.carried):
                why = _why_over(batch, ended[0] if ended else problem)
                batch.break_off(why)
                if isinstance(why, OutcomeUnknown) and isinstance(problem, Exception):
                    raise why from problem


def _check_deferred(connection: Connection) -> None:
    """Check deferred constraints now, so that only this request fails, not the whole batch."""
    # These two drivers can send several statements in one message.
    at_once = connection.dialect.driver in {"psycopg", "psycopg2"}
    for statement in ["; ".join(CHECK_DEFERRED)] if at_once else CHECK_DEFERRED:
        connection.exec_driver_sql(statement)


def _is_over(carried: _Carried) -> bool:
    connection = carried.connection
    return connection.closed or connection.invalidated or not carried.transaction.is_active


def _why_over(batch: Batch[_Carried], problem: BaseException | None) -> Exception:
    connection = batch.carried.connection
    shown = ", ".join(map(repr, batch.grant.names))
    if connection.closed:
        return BatchFailed(f"A request has closed the connection that those for the lock {shown} shared.")
    if connection.invalidated or (problem is not None and ends_transaction(problem)):
        return BatchFailed(f"The database has ended what requests for the lock {shown} shared: {problem}")
    return unknown(batch.grant, problem)


def _watch_statements(connection: Connection) -> None:
    if connection.dialect.name in {"mysql", "mariadb"}:

        def look(connection: Connection, cursor: object, sql: str, *about: object) -> None:
            refuse_committing(sql)

        event.listen(connection, "before_cursor_execute", look)


def _leave(stack: ExitStack) -> CleanUp:
    """Empty *stack*. Return a function that rolls its transaction back and closes the connection.

    The thread that uses the connection now calls that function after its part.
    """
    rest = stack.pop_all()
    return lambda: rest.__exit__(LockLost, LockLost("The batch was given up."), None)


_OURS = "_distlock_joins"


@contextmanager
def joined(connection: Connection) -> Iterator[None]:
    """Let the sessions of this context take part in the transaction of *connection* during the block."""
    before = shared_connection.set(connection)
    try:
        yield
    finally:
        shared_connection.reset(before)


def let_join(session: scoped_session[Session], where: str) -> None:
    """Let the sessions that *session* makes obey `joined`. Raises `ConfigurationError` if they can't.

    Their class is changed, and not one session, because a view may get another session after
    ``db.session.remove()``.
    """
    factory = session.session_factory
    if not isinstance(factory, sessionmaker):
        raise ConfigurationError(
            f"{where} has batch=, and db.session is not made by SQLAlchemy's sessionmaker: leave batch= out."
        )
    # A sessionmaker makes its own subclass, so the sessions of others don't change.
    cls: Any = factory.class_
    if hasattr(cls, _OURS):
        return
    cls.get_bind = _joining(cls.get_bind)
    setattr(cls, _OURS, True)


def _joining(get_bind: Callable[..., Engine | Connection]) -> Callable[..., Engine | Connection]:
    def get_bind_or_join(self: Session, *args: Any, **kwargs: Any) -> Engine | Connection:
        found = get_bind(self, *args, **kwargs)
        connection = shared_connection.get()
        if connection is None or not isinstance(found, Engine):
            return found
        if found.pool is not connection.engine.pool:
            raise ConfigurationError(
                f"A view with batch= uses {found.url.render_as_string()}, which is another database than the "
                "one whose transaction it shares, and would be committed before that: leave batch= out."
            )
        self.join_transaction_mode = "create_savepoint"
        return connection

    return get_bind_or_join
