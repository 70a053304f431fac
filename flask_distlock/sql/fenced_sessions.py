"""Fence rows in SQLAlchemy's databases, and the transactions of sessions that pass the fence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from flask import has_app_context
from flask.globals import app_ctx
from sqlalchemy import Connection, Dialect, Engine, MetaData, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from distlock.backends.inspectable import Finding
from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.fence import transaction as fenced_transaction
from distlock.fence.prune import examine_table
from distlock.fence.prune import prune as prune_rows
from distlock.fence.stamps import RolledBack
from distlock.fence.statements import statements_for
from distlock.fence.transaction_mark import Mark, commits_in_message, of_savepoint, takes_several
from distlock.fence.trouble import ends_transaction, is_in_failed_transaction
from distlock.grants.grant import Grant
from distlock.terms import READ
from flask_distlock.binds import DEFAULT_BIND
from flask_distlock.fence import fence_table
from flask_distlock.private import is_last_at_commit, listeners_at_begin
from flask_distlock.sql.changes import FENCE, commits_by_itself, joins

#: The functions to call if the database itself ends the transaction of a connection: see `watch`.
_watched: WeakKeyDictionary[Connection, list[Callable[[BaseException], None]]] = WeakKeyDictionary()
#: The marks of open transactions that have passed the fence.
_marks: WeakKeyDictionary[Connection, Mark] = WeakKeyDictionary()
#: The engines that check `_marks` before COMMIT.
_committing: WeakSet[Engine] = WeakSet()
#: The dialects whose errors `_on_error` receives. SQLAlchemy registers its listeners by dialect.
_heard: WeakSet[Dialect] = WeakSet()


def table_remedy(bind: str) -> str:
    """Return the remedy for a missing fence table in *bind*."""
    return "Run: flask distlock create-table" + ("" if bind == DEFAULT_BIND else f" --bind {bind}")


def fenced(
    session: Session, engine: Engine, grant: Grant, left: Callable[[], float], bind: str = DEFAULT_BIND
) -> AbstractContextManager[object]:
    """Begin the transaction of *session* on *engine*, and pass the fence in it.

    An error in the block of the returned context manager rolls the transaction back.

    *left*: returns the seconds left to wait for transactions of earlier grants. *bind*: the name of *engine*
    in the settings. Raises `LockLost`, `LockTimeout`.
    """
    row = FenceConnection(engine, session)

    @contextmanager
    def begin() -> Iterator[None]:
        try:
            row.open = session.connection(bind_arguments={"bind": engine})
            refuse_autocommit(row.open)
            yield
        except BaseException:
            session.rollback()
            raise
        finally:
            row.open = None

    # checks_absent=False: `check_absent_rows_in` is called before each COMMIT in the block.
    return fenced_transaction.begin_fenced(begin, row, grant, left, table_remedy(bind), checks_absent=False)


def check_absent_rows_in(session: Session, engine: Engine, grant: Grant, left: Callable[[], float]) -> None:
    """Before COMMIT, raise `OvertakenReader` if a writer has inserted a fence row that *grant* missed."""
    row = FenceConnection(engine, session)
    if fenced_transaction.absent_for(grant, row.database):
        row.open = session.connection(bind_arguments={"bind": engine})
        fenced_transaction.check_absent_rows(row, grant, left)


def fence_again(session: Session, connection: Connection, grant: Grant, left: Callable[[], float]) -> None:
    """Pass the fence in a later transaction of the same grant, just begun on *connection* by *session*.

    If this raises, the transaction has not passed the fence, but can be used to read.
    """
    row = FenceConnection(connection.engine, session)
    row.open = connection
    # Without a savepoint PostgreSQL would refuse all statements after a failed one.
    with connection.begin_nested() if row.kind == "postgresql" else nullcontext():
        # The transaction that inserted the fence rows may have been rolled back.
        missing = [
            *fenced_transaction.made_by(grant, row.database),
            *fenced_transaction.absent_for(grant, row.database),
        ]
        fenced_transaction.pass_fence(row, statements_for(row.kind), grant, left, missing)


def create_table(engine: Engine) -> str:
    """Create the fence table, unless it exists. Return its name."""
    table = fence_table(MetaData())
    table.create(engine, checkfirst=True)
    return table.name


def prune(engine: Engine, bind: str, days: float, dry_run: bool) -> int:
    """Delete old fence rows, and return how many: see `distlock.fence.prune.prune`.

    *bind*: the name of *engine* in the settings.
    """
    row = FenceConnection(engine)
    return prune_rows(partial(begun, engine, row), row, days, table_remedy(bind), dry_run)


def examine(engine: Engine, bind: str, wanted: bool) -> Finding | None:
    """Return the finding of the health check about the fence table: see `distlock.fence.prune.examine_table`.

    *bind*: the name of *engine* in the settings.
    """
    row = FenceConnection(engine)
    line = "flask distlock prune" + ("" if bind == DEFAULT_BIND else f" --bind {bind}")
    return examine_table(partial(begun, engine, row), row, table_remedy(bind), line, wanted)


@contextmanager
def begun(engine: Engine, row: FenceConnection) -> Iterator[None]:
    """Run the block in a new transaction on *engine*, whose connection is `open` in *row*."""
    with engine.begin() as row.open:
        refuse_autocommit(row.open)
        yield


def watch(connection: Connection, ended: Callable[[BaseException], None]) -> None:
    """Call *ended* with the error if MySQL or MariaDB itself ends the transaction of *connection*.

    A view that goes on after a deadlock is in another transaction, which has not passed the fence.
    """
    if connection.dialect.name not in {"mysql", "mariadb"}:
        return
    if connection.dialect not in _heard:
        _heard.add(connection.dialect)
        event.listen(connection.engine, "handle_error", _on_error)
    _watched.setdefault(connection, []).append(ended)


def _on_error(context: ExceptionContext) -> None:
    if context.connection is not None and ends_transaction(context.original_exception):
        for ended in _watched.get(context.connection, ()):
            ended(context.original_exception)


def set_mark(connection: Connection, mark: Mark) -> None:
    """Check before COMMIT on *connection* that the transaction still has *mark*."""
    if connection.engine not in _committing:
        _committing.add(connection.engine)
        event.listen(connection.engine, "commit", _on_commit)
    _marks[connection] = mark


def _on_commit(connection: Connection) -> None:
    mark = _marks.pop(connection, None)
    if mark is not None:
        # A later listener may still send statements of the transaction. So send COMMIT with the look at the
        # mark, in one message, only if there is none.
        last = is_last_at_commit(connection, _on_commit)
        at_once = last and commits_in_message(connection.connection.dbapi_connection)
        mark.look(partial(_send, connection), "COMMIT" if at_once else "")


def _send(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement, execution_options={FENCE: False}).close()


def look_at_mark(connection: Connection) -> None:
    """Raise `EndedEarly` if the open transaction of *connection* is not the one that has passed the fence."""
    mark = _marks.get(connection)
    if mark is None:
        return
    mark.look(partial(_send, connection))
    # If the look has removed the mark, set another one for the look before COMMIT.
    if not mark.stays:
        mark, statement = of_savepoint(mark.names)
        _send(connection, statement)
        _marks[connection] = mark


def refuse_autocommit(connection: Connection) -> None:
    """Raise `ConfigurationError` if *connection* is in autocommit mode, where no row stays locked."""
    if commits_by_itself(connection):
        raise ConfigurationError(
            "The engine has the isolation level AUTOCOMMIT: the fence's row would be unlocked at once. Leave "
            "isolation_level out for what is fenced."
        )


class FenceConnection:
    """A connection of SQLAlchemy, as `distlock.fence.statements.Connection`.

    `open` is the connection while its transaction is open, else None.
    """

    def __init__(self, engine: Engine, session: Session | None = None) -> None:
        # The pool stands for the database, because copies of an engine with other options share it.
        self.database = engine.pool
        self.open: Connection | None = None
        self._engine = engine
        self._session = session

    @property
    def kind(self) -> str:
        # The first connection of a MySQL engine finds out whether the server is MariaDB.
        dialect = self._engine.dialect
        return "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name

    @property
    def listened(self) -> bool:
        others = listeners_at_begin(self._session, self._engine)
        return any(not str(one.__module__).startswith("flask_distlock") for one in others)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        assert self.open is not None
        if self.open.dialect.paramstyle == "qmark":
            statement = statement.replace("%s", "?")
        result = self.open.exec_driver_sql(statement, tuple(parameters), execution_options={FENCE: True})
        return result.fetchall() if result.returns_rows else []

    @property
    def takes_several(self) -> bool:
        assert self.open is not None
        return takes_several(self.open.connection.dbapi_connection)

    @property
    def wants_mark(self) -> bool:
        # A transaction of a test needs no mark, because the session that has joined it never ends it. If a
        # guard around this one has marked the transaction, that mark is enough.
        joined = self._session is not None and joins(self._session)
        return not joined and self.open not in _marks

    def mark(self, mark: Mark) -> None:
        assert self.open is not None
        set_mark(self.open, mark)


Left = Callable[[], float]


@dataclass(slots=True, eq=False)
class Fenced:
    """The fence of one guard, which the transactions on `engine` have to pass."""

    engine: Engine
    grant: Grant
    left: Left
    #: Why the open transaction did not pass, or is no longer the one that passed; None: it passed, or it need
    #: not, because `row_unlocked` is True.
    refused: Exception | None = None
    #: Whether the lock was a row, which COMMIT has unlocked. Later reads may be stale.
    row_unlocked: bool = False

    def end(self, error: BaseException) -> None:
        """Note that the database itself has ended the transaction, with *error*."""
        self.refused = RolledBack(self.grant.names)
        self.refused.__cause__ = error


class Fences:
    """The fences that an app's sessions have to pass.

    *is_current*: returns whether a session is the present ``db.session``.
    """

    def __init__(self, is_current: Callable[[Session], bool]) -> None:
        self._is_current = is_current
        #: All fences that are in use, of any session.
        self.open: set[Fenced] = set()
        #: The fences of each session, the outermost first.
        self._of: WeakKeyDictionary[Session, tuple[Fenced, ...]] = WeakKeyDictionary()
        #: The fences of each app context, which may get another session by ``db.session.remove()`` in a view.
        self._in: WeakKeyDictionary[Any, tuple[Fenced, ...]] = WeakKeyDictionary()

    def of(self, session: Session) -> tuple[Fenced, ...]:
        found = self._of.get(session, ())
        if found or not has_app_context():
            return found
        found = self._in.get(app_ctx._get_current_object(), ())  # type: ignore[attr-defined]
        return found if found and self._is_current(session) else ()

    @contextmanager
    def passing(self, session: Session, fenced: Fenced) -> Iterator[None]:
        """Let later transactions of *session* in the block pass *fenced*, which the open one has passed."""
        context = app_ctx._get_current_object()  # type: ignore[attr-defined]
        self._of[session] = self._in[context] = (*self.of(session), fenced)
        watch(session.connection(bind_arguments={"bind": fenced.engine}), fenced.end)
        self.open.add(fenced)
        try:
            with beginnable(session):
                yield
        finally:
            # Remove only this fence: an outer guard goes on, and fences of kept locks may end in any order.
            rest = tuple(one for one in self._of.get(session, ()) if one is not fenced)
            self._of[session] = self._in[context] = rest
            self.open.discard(fenced)

    def begin(self, session: Session, connection: Connection) -> None:
        """Pass the fences in a later transaction of *session*, just begun on *connection*."""
        for fenced in self.of(session):
            if connection.engine.pool is not fenced.engine.pool:
                continue
            # The new transaction has to pass again: another grant may have passed since the last COMMIT.
            fenced.refused = None
            if fenced.row_unlocked:
                continue
            watch(connection, fenced.end)
            try:
                fence_again(session, connection, fenced.grant, fenced.left)
            except (LockError, fenced_transaction.Again) as error:
                # Don't raise before COMMIT: the view may have committed all its changes, and now only reads.
                fenced.refused = error

    def refuse_commit(self, session: Session, has_changes: Callable[[Session], bool]) -> None:
        """Raise an error if *session*, which is about to commit, must not.

        Raises `LockLost` if the transaction did not pass a fence, or a reader was overtaken, and
        `ConfigurationError` for changes after the COMMIT that has unlocked a row.
        """
        fences = self.of(session)
        for fenced in fences:
            if fenced.refused is not None:
                names = ", ".join(map(repr, fenced.grant.names))
                raise LockLost(
                    f"A transaction under the lock {names} did not pass the fence: {fenced.refused}"
                ) from fenced.refused
        self.check_absent_rows(session)
        # Only the innermost guard counts: its lock protects the changes, even if an outer one was released.
        if fences and fences[-1].row_unlocked and has_changes(session):
            names = ", ".join(map(repr, fences[-1].grant.names))
            raise ConfigurationError(
                f"db.session.commit() is called a second time under the lock {names}, which is a row of the "
                "database and was released by the first commit: write everything before one commit."
            )

    def check_absent_rows(self, session: Session) -> None:
        """Raise `LockLost` if a reader was overtaken. Called before the transaction of *session* ends."""
        for fenced in self.of(session):
            # If the lock was a row, the first COMMIT has looked and then unlocked it.
            if not fenced.row_unlocked:
                check_absent_rows_in(session, fenced.engine, fenced.grant, fenced.left)

    def refuse_ended(self, session: Session) -> None:
        """Raise `EndedEarly` if the open transaction of *session* is not the one that has passed the fences.

        Readers are not checked, because they commit nothing.
        """
        for fenced in self.of(session):
            if fenced.grant.mode != READ and not fenced.row_unlocked:
                look_at_mark(session.connection(bind_arguments={"bind": fenced.engine}))

    def committed(self, session: Session) -> None:
        for fenced in self.of(session):
            fenced.row_unlocked = fenced.grant.held_by_transaction


@contextmanager
def beginnable(session: Session) -> Iterator[None]:
    """Let the first `session.begin()` in the block return the open transaction.

    SQLAlchemy would raise, because a transaction has begun. But the guard began it, to pass the fence in it,
    and many views write ``with db.session.begin():``.
    """
    if "begin" in vars(session):
        # An outer guard has replaced begin() already.
        yield
        return
    begin, fenced = session.begin, session.get_transaction()

    def first(nested: bool = False) -> SessionTransaction:
        nonlocal fenced
        mine, fenced = fenced, None
        if not nested and mine is not None and mine is session.get_transaction():
            return mine
        return begin(nested)

    session.begin = first  # type: ignore[method-assign]
    try:
        yield
    finally:
        del session.begin


@contextmanager
def transaction(
    grant: Grant, session: Session | scoped_session[Any], engine: Engine | None = None
) -> Iterator[None]:
    """See `flask_distlock.transaction`."""
    fenced_transaction.refuse_unfit("transaction(grant, session)", grant)
    names = ", ".join(map(repr, grant.names))
    found = session() if isinstance(session, scoped_session) else session
    if not isinstance(found, Session):
        raise ConfigurationError(
            f"transaction() on {names} takes a Session of SQLAlchemy, or db.session, and not a "
            f"{type(found).__name__}."
        )
    if found.in_transaction():
        raise ConfigurationError(
            f"transaction() on {names}: the session has begun a transaction already, so that the fence "
            "would come too late. Write session.commit() or session.rollback() before the 'with', or open "
            "the session inside the lock."
        )
    grant.check()
    left = fenced_transaction.time_left(grant)
    bind = engine or found.get_bind()
    if not isinstance(bind, Engine):
        raise ConfigurationError(
            f"transaction() on {names}: the session is bound to a connection, whose transaction others "
            "have begun. Bind it to the engine, or write engine=."
        )
    connection = FenceConnection(bind, found)
    ended: list[BaseException] = []

    @contextmanager
    def begin() -> Iterator[None]:
        # begin_fenced() may try several times, and only the last attempt counts.
        ended.clear()
        with found.begin():
            try:
                connection.open = found.connection(bind_arguments={"bind": bind})
                refuse_autocommit(connection.open)
                watch(connection.open, ended.append)
                yield
            finally:
                connection.open = None

    def check(_session: Session) -> None:
        # This runs just before each COMMIT, so an error here means that nothing is written.
        grant.check()
        if ended:
            raise RolledBack(grant.names) from ended[0]
        driver = None if connection.open is None else connection.open.connection.dbapi_connection
        if is_in_failed_transaction(driver):
            raise ConfigurationError(
                f"transaction() on {names}: the block has caught an error of the database, which rolls "
                "back all of the transaction then: nothing of it is written. Write 'with "
                "session.begin_nested():' inside the try, around what may fail, or let the error out."
            )
        fenced_transaction.check_absent_rows(connection, grant, left)

    committed = False

    def note_commit(_session: Session) -> None:
        nonlocal committed
        # SQLAlchemy also calls this when a savepoint is released. `check` refuses later transactions.
        committed = committed or not found.in_nested_transaction()

    table = table_remedy(DEFAULT_BIND)
    # checks_absent=False: `check` checks the absent rows, also before a commit() in the block.
    with fenced_transaction.begin_fenced(begin, connection, grant, left, table, checks_absent=False):
        # The loaded objects may have been read before the lock.
        found.expire_all()
        event.listen(found, "before_commit", check)
        event.listen(found, "after_commit", note_commit)
        try:
            yield
            # Flush and check here, because the end of begin_fenced() commits what the block has left.
            if found.in_transaction():
                found.flush()
                check(found)
            elif not committed:
                raise ConfigurationError(
                    f"transaction() on {names} was rolled back inside the block, as by session.rollback(), "
                    "close() or db.session.remove(). If the block has committed anything since, that has "
                    "passed no fence. To roll back, let an error out of the block."
                )
        finally:
            event.remove(found, "before_commit", check)
            event.remove(found, "after_commit", note_commit)
    grant._vouch()
