"""Fences transactions of Django's databases, and what ``on_commit`` hooks write after COMMIT.

Each transaction of a hook passes the fence again. Outside of transactions the lock is checked before each
statement of a hook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from distlock.backends.inspectable import Finding
from distlock.clock import now
from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.fence.prune import examine_table
from distlock.fence.prune import prune as prune_rows
from distlock.fence.stamps import RolledBack
from distlock.fence.statements import Connection
from distlock.fence.transaction import (
    Begin,
    OvertakenReader,
    absent_rows_kept,
    begin_fenced,
    check_absent_rows,
    unless_unused,
)
from distlock.fence.transaction_mark import EndedEarly, Mark, commits_in_message, takes_several
from distlock.fence.trouble import ends_transaction
from distlock.grants.grant import Grant
from django_distlock import private
from django_distlock.guarding.open_transactions import ask_for_rollback


@contextmanager
def fenced(grant: Grant, using: str, left: Callable[[], float]) -> Iterator[None]:
    """Run the block in a transaction of the database *using*. Commit it unless a later grant has committed.

    Transactions that begin in its ``on_commit`` hooks are fenced, too: see `LaterTransactions`. *left*:
    returns the seconds left to wait for transactions of earlier grants. Raises `LockLost`, `LockTimeout`,
    `EndedEarly`.
    """

    def begin() -> AbstractContextManager[object]:
        # durable=True raises if a transaction is open already, which would pass the fence too late.
        return transaction.atomic(using=using, durable=True)

    connection = _MarkedConnection(using)
    later = LaterTransactions(grant, connection)
    with (
        connection.watched(),
        later.watched(),
        begin_fenced(begin, connection, grant, left, table_remedy(using)),
        _undivided(grant, using),
    ):
        yield
        later.watch()


@contextmanager
def later_transactions(grant: Grant, using: str) -> Iterator[None]:
    """Fence the transactions of the block, which follow a `fenced` transaction on another connection."""
    connection = _MarkedConnection(using)
    later = LaterTransactions(grant, connection)
    with connection.watched(), later.watched():
        later.watch()
        yield


@contextmanager
def leaving_no_unused_row(grant: Grant, using: str) -> Iterator[None]:
    """Remove the fence rows that *grant* has inserted in this transaction, if the block writes nothing.

    The rows stay if the transaction has ``on_commit`` hooks, or if code has asked for the fence.
    """
    connection = connections[using]

    def goes_on() -> bool:
        # The transaction of a hook may rely on what was read in this one. A rollback removes the rows anyway.
        return private.is_marked(connection) or private.has_commit_hooks(connection)

    with unless_unused(_Connection(using), grant, goes_on):
        yield


@contextmanager
def _undivided(grant: Grant, using: str) -> Iterator[None]:
    """Raise `RolledBack` at the end of the block if the database ended the transaction inside it.

    MySQL and MariaDB do so if they detect a deadlock. A view that catches that error and goes on is in
    another transaction, which has not passed the fence.
    """
    connection = connections[using]
    if connection.vendor != "mysql":
        yield
        return
    ended: list[Exception] = []

    def watch(execute: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return execute(*arguments)
        except Exception as error:
            if ends_transaction(error):
                ended.append(error)
                ask_for_rollback(connection)
            raise

    with connection.execute_wrapper(watch):
        yield
    if ended:
        raise RolledBack(grant.names) from ended[0]


def prune(using: str, days: float, dry_run: bool) -> int:
    """Delete fence rows: see `distlock.fence.prune`. *using*: an alias of ``DATABASES``."""
    database_of(using)
    check_database(using)
    begin = partial(transaction.atomic, using=using, durable=True)
    return prune_rows(begin, _Connection(using), days, table_remedy(using), dry_run)


def examine(using: str, wanted: bool) -> Finding | None:
    """Examine the fence table for the doctor. Return None if it is missing, and not *wanted*.

    *using*: an alias of ``DATABASES``.
    """
    check_database(using)
    begin = partial(transaction.atomic, using=using)
    line = "python manage.py distlock prune" + ("" if using == DEFAULT_DB_ALIAS else f" --database {using}")
    return examine_table(begin, _Connection(using), table_remedy(using), line, wanted)


def database_of(fence: bool | str) -> str | None:
    """Return the alias of the database that the option *fence* means; None: no fence.

    Raises `ConfigurationError` if there is no such database.
    """
    if not fence:
        return None
    using = DEFAULT_DB_ALIAS if fence is True else fence
    if using not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise ConfigurationError(f"fence={using!r} names no database of DATABASES, which has {known}.")
    return using


def check_database(using: str) -> None:
    """Raise `ConfigurationError` if the database *using* can't have a fence. Does not connect."""
    connection = connections[using]
    if connection.vendor not in {"postgresql", "mysql", "sqlite"}:
        raise ConfigurationError(
            f"The database {using!r} is {connection.vendor}, and a fence needs PostgreSQL, MariaDB, MySQL or "
            "SQLite: leave fence= and FENCE out."
        )


def table_remedy(using: str) -> str:
    """Return the remedy for a missing fence table."""
    installed = apps.is_installed("django_distlock")
    install = "" if installed else 'Write INSTALLED_APPS += ["django_distlock"]. '
    database = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    return f"{install}Run: python manage.py migrate distlock{database}"


@contextmanager
def rows_connection(fence: bool | str) -> Iterator[Connection]:
    """Yield this thread's connection to the database of *fence*, to inspect its locked rows."""
    using = database_of(fence)
    assert using is not None
    yield _Connection(using)


class _Connection:
    """One of Django's connections, as `distlock.fence.statements.Connection`."""

    def __init__(self, using: str) -> None:
        self._connection: Any = connections[using]
        self.database = using
        # Django has no signal for BEGIN, so no receiver can have read anything yet.
        self.listened = False

    @cached_property
    def kind(self) -> str:
        # The first look at the attribute costs a query. Only Django's wrapper for MySQL and MariaDB has it.
        mariadb = getattr(self._connection, "mysql_is_mariadb", False)
        return "mariadb" if mariadb else str(self._connection.vendor)

    @property
    def takes_several(self) -> bool:
        return takes_several(self._connection.connection)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description else ()
            return rows

    @property
    def wants_mark(self) -> bool:
        return False

    def mark(self, mark: Mark) -> None:
        """Do nothing: `wants_mark` is False."""


#: The connections that check a mark before each COMMIT, with the mark of the open transaction; None: it has
#: none.
_marks: WeakKeyDictionary[Any, Mark | None] = WeakKeyDictionary()


class _MarkedConnection(_Connection):
    """A connection that marks the transaction that passes the fence.

    Its COMMIT raises `EndedEarly` if that transaction has ended before, and another one is open.
    """

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Check the mark before each COMMIT of the block."""
        if self._connection in _marks:
            # This guard runs in an on_commit hook of another guard, which checks already.
            yield
            return
        _marks[self._connection] = None
        undo = private.send_commit_by(self._connection, self._commit)
        try:
            yield
        finally:
            undo()
            del _marks[self._connection]

    @property
    def wants_mark(self) -> bool:
        # In a TestCase the outermost transaction is the TestCase's, so the end of this one sends no COMMIT.
        return private.is_outermost(self._connection)

    def mark(self, mark: Mark) -> None:
        _marks[self._connection] = mark

    def _commit(self, commit: Callable[[], None]) -> None:
        connection = self._connection
        mark, driver = _marks[connection], connection.connection
        _marks[connection] = None
        if mark is None or driver is None:
            commit()
            return
        several = takes_several(driver)
        at_once = "COMMIT" if several or commits_in_message(driver) else ""
        try:
            mark.look(self._send, at_once, partial(private.commit_hook_names, connection))
        except EndedEarly:
            # If COMMIT fails, Django itself rolls back for database errors only.
            _roll_back(connection)
            raise
        if not several:
            commit()

    def _send(self, statement: str) -> None:
        """Send *statement* without the site's execute wrappers, as Django sends COMMIT."""
        with self._connection.wrap_database_errors:
            cursor = self._connection.connection.cursor()
            try:
                cursor.execute(statement)
            finally:
                cursor.close()


class LaterTransactions:
    """The transactions of *grant* that follow its first one on the connection *fenced*, and are fenced, too.

    Used by one thread.
    """

    def __init__(self, grant: Grant, fenced: _MarkedConnection) -> None:
        self._grant = grant
        self._fenced = fenced
        self._using = fenced.database
        self._connection: Any = connections[fenced.database]
        self._set_autocommit: Callable[..., None] = self._connection.set_autocommit
        #: Ends the watch; None before the first transaction is about to be committed.
        self._end_watch: Callable[[], None] | None = None
        #: Returns the seconds left for the open transaction, which has passed the fence; None: none is open.
        self._left: Callable[[], float] | None = None
        self._passing = False
        self._passed_again = False
        self._ended: Exception | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the statements of the block: of the first transaction, and of the hooks that follow it."""
        with self._connection.execute_wrapper(self._execute):
            try:
                yield
            finally:
                if self._end_watch is not None:
                    self._end_watch()

    def watch(self) -> None:
        """Fence the transactions that begin from now on. Called before the COMMIT of the first one."""
        stack, connection = ExitStack(), self._connection
        stack.callback(private.begin_and_end_by(connection, self._begin_or_end))
        stack.callback(private.send_commit_by(connection, self._commit))
        stack.callback(private.send_rollback_by(connection, self._end_uncommitted))
        # A closed connection ends its transaction, and the next statement connects again.
        stack.callback(private.close_by(connection, self._end_uncommitted))
        self._end_watch = stack.close

    def _begin_or_end(self, autocommit: bool, *arguments: Any, **words: Any) -> None:
        change = partial(self._set_autocommit, autocommit, *arguments, **words)
        if not autocommit:
            self._pass(partial(_Begun, change, self._connection, self._set_autocommit))
            return
        try:
            # MariaDB and MySQL commit a transaction that is open still.
            self._check_absent_rows()
        finally:
            change()
        self._refuse_ended()

    def _commit(self, commit: Callable[[], None]) -> None:
        self._check_absent_rows()
        commit()

    def _end_uncommitted(self, end: Callable[[], None]) -> None:
        self._left = None
        end()

    def _check_absent_rows(self) -> None:
        """Raise `LockLost`, and roll back, if a writer has overtaken a reader in the open transaction."""
        left, self._left = self._left, None
        if left is None:
            return
        self._passing = True
        try:
            check_absent_rows(self._fenced, self._grant, left)
        except OvertakenReader as error:
            _roll_back(self._connection)
            raise self._lost() from error
        finally:
            self._passing = False

    def _pass(self, begin: Begin) -> None:
        timeout = self._grant.timeout
        deadline = now() + (timeout if timeout >= 0 else math.inf)
        self._passing = True
        try:
            self._grant.check()
            left, table = lambda: deadline - now(), table_remedy(self._using)
            # checks_absent=False: the stack is dropped, and `_check_absent_rows` runs before COMMIT.
            begin_fenced(begin, self._fenced, self._grant, left, table, again=True, checks_absent=False)
            self._left = left
        except ConfigurationError:
            raise
        except LockError as error:
            raise self._lost() from error
        finally:
            self._passing = False

    def _execute(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        if self._end_watch is not None and not self._passing:
            if not self._connection.in_atomic_block:
                self._check_before_statement()
            elif self._left is None and private.is_in_manual_block(self._connection):
                # A block with autocommit off may be in a transaction that has begun after a commit().
                with private.leaving_manual_block(self._connection):
                    self._pass(nullcontext)
        try:
            return execute(*arguments)
        except Exception as error:
            connection = self._connection
            if self._end_watch is not None and connection.in_atomic_block and connection.vendor == "mysql":
                self._note(error)
            raise

    def _note(self, error: Exception) -> None:
        if ends_transaction(error):
            # A hook that catches the error goes on in another transaction, which has not passed the fence.
            private.mark(self._connection)
            self._ended = error

    def _check_before_statement(self) -> None:
        """Check the lock before a statement outside of ``atomic``. Pass the fence before the first one."""
        if not self._connection.autocommit:
            # The statement may begin a transaction, after set_autocommit(False) and perhaps a commit().
            with nullcontext() if self._left is None else absent_rows_kept(self._grant, self._using):
                self._pass(nullcontext)
            return
        if self._grant.held_by_transaction:
            return  # The lock was a row, which COMMIT has unlocked.
        if not self._passed_again:
            with transaction.atomic(using=self._using):
                self._passed_again = True
        # The row is unlocked, so the lock must not be released while the statement is under way.
        self._grant._keep_if_killed()
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


class _Begun(AbstractContextManager[None]):
    """A transaction that the site's own code ends. It is rolled back if the block raises.

    It is no generator: `_pass` drops the stack that has entered it, and a generator that is dropped inside
    its block would roll back.
    """

    def __init__(
        self, begin: Callable[[], None], connection: Any, set_autocommit: Callable[..., None]
    ) -> None:
        self._begin = begin
        self._connection = connection
        self._set_autocommit = set_autocommit

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, kind: object, *exc_info: object) -> None:
        if kind is None:
            return
        _roll_back(self._connection)
        self._set_autocommit(True)


def _roll_back(connection: Any) -> None:
    """Roll the open transaction of *connection* back, or close *connection* if that fails."""
    try:
        connection.rollback()
    except Error:
        connection.close()
