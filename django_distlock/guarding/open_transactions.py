"""Refuses transactions that would be committed after the release, or not at all.

A transaction that was open before the lock, or that locked code left open, would be committed too late. If
locked code has closed the connection, or caught an error of the database, its COMMIT would be a ROLLBACK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from django.db import DEFAULT_DB_ALIAS, connections

from distlock.errors import ConfigurationError
from distlock.fence.trouble import is_in_failed_transaction
from distlock.web.guard_marks import this_code
from distlock.web.guard_stack import STACK
from django_distlock import private
from django_distlock.private import own_blocks

#: The remedy if a transaction is open before the lock.
ABOVE = (
    "Write @distributed_lock above whatever opens it, transaction.atomic or a decorator of your own, on the "
    "view itself and not on a function or method that it calls; for a class-based view above the class. "
    "Decorators between it and the URL need functools.wraps."
)


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that is open before a lock is acquired: its COMMIT would come after the release."""

    alias: str
    #: Whether autocommit is off, so that a transaction is always open.
    manual: bool

    def message(self, where: str, names: Sequence[str], nested: bool, remedy: str = "") -> str:
        shown = ", ".join(map(repr, names))
        if self.manual:
            return (
                f"{where} would be locked on {shown} while autocommit is off on the database "
                f"{self.alias!r}: nobody knows when that is committed. Use transaction.atomic()."
            )
        problem = (
            f"{where} would be locked on {shown} inside a transaction of the database {self.alias!r} that is "
            "already open, and released before its COMMIT: another server would read what is about to change."
        )
        if nested:
            return (
                f"{problem} The guard around it opened it: name all locks in one place, "
                f"@distributed_lock(…, {shown}), on the outer function. {STACK} "
                "On a class, pass both to one method_decorator((…, …))."
            )
        return f"{problem} {remedy or ABOVE}"


def find_open(alias: str | None = None) -> Open | None:
    """Return the first open transaction of this thread, except those that `TestCase` opens around a test.

    *alias*: look at this database only. Return None if there is none.
    """
    for connection in connections.all(initialized_only=True):
        if alias not in {None, connection.alias}:
            continue
        if connection.in_atomic_block:
            if own_blocks(connection):
                return Open(connection.alias, manual=False)
        elif connection.connection is not None and not connection.autocommit:
            return Open(connection.alias, manual=True)
    # Look at the settings, too: the view may be the first to open a connection.
    for other, settings in connections.settings.items():
        if settings["AUTOCOMMIT"] or alias not in {None, other} or connections[other].in_atomic_block:
            continue
        return Open(other, manual=True)
    return None


def refuse_open(names: Sequence[str], remedy: str) -> None:
    """Raise `ConfigurationError` if a transaction is open. *remedy*: the remedy that the error names."""
    if (found := find_open()) is not None:
        raise ConfigurationError(found.message(this_code(), names, nested=False, remedy=remedy))


def refuse_left(names: Sequence[str], alias: str | None) -> None:
    """Raise `ConfigurationError` if code under the lock left a transaction open, of the database *alias*."""
    if alias is not None:
        shown = ", ".join(map(repr, names))
        raise ConfigurationError(
            f"What ran under the lock {shown} left a transaction of the database {alias!r} open: it is "
            "rolled back, for its COMMIT would come after the release. Write 'with transaction.atomic():'."
        )


def refuse_early(names: Sequence[str], alias: str | None) -> None:
    """Raise `ConfigurationError` if the lock was released inside a transaction, of the database *alias*."""
    if alias is not None:
        shown = ", ".join(map(repr, names))
        raise ConfigurationError(
            f"The lock {shown} was released inside a transaction of the database {alias!r} that began under "
            "it: that is rolled back, for its COMMIT would come after the release. Write 'with "
            "locks.lock(…):' around 'with transaction.atomic():', or release() after its end; a view under "
            "ATOMIC_REQUESTS has @distributed_lock(…). Where the lock has nothing to do with the database, "
            "write locks.lock(…, in_transaction=True)."
        )


def refuse_closed(aliases: Sequence[str]) -> None:
    """Raise `ConfigurationError` if a connection of *aliases* was closed inside its transaction."""
    for alias in aliases:
        if private.was_closed_inside(connections[alias]):
            raise ConfigurationError(
                f"The view closed its connection to the database {alias!r} inside its transaction, so that "
                "nothing of it is committed: leave connection.close() and connections.close_all() out."
            )


#: Connections whose innermost block will be rolled back because code asked for it, not by mistake.
_wanted_rollbacks: WeakSet[Any] = WeakSet()


@contextmanager
def noting_rollbacks(aliases: Sequence[str]) -> Iterator[None]:
    """Note calls of `transaction.set_rollback` for *aliases* in the block: `refuse_failed` accepts them."""
    with ExitStack() as stack:
        for alias in aliases:
            connection: Any = connections[alias]
            _wanted_rollbacks.discard(connection)
            stack.callback(_wanted_rollbacks.discard, connection)
            stack.callback(private.set_rollback_by(connection, _noting(connection)))
        yield


def _noting(connection: Any) -> Callable[[bool], None]:
    set_rollback: Callable[[bool], None] = connection.set_rollback

    def set_rollback_and_note(rollback: bool) -> None:
        set_rollback(rollback)
        (_wanted_rollbacks.add if rollback else _wanted_rollbacks.discard)(connection)

    return set_rollback_and_note


def ask_for_rollback(connection: Any) -> None:
    """Make the innermost block of *connection* roll back. `refuse_failed` then accepts that."""
    private.mark(connection)
    _wanted_rollbacks.add(connection)


def forget_rollback(connection: Any) -> None:
    """Forget what `ask_for_rollback` noted for *connection*, whose innermost block has ended."""
    _wanted_rollbacks.discard(connection)


def refuse_failed(aliases: Sequence[str]) -> None:
    """Raise `ConfigurationError` if a transaction of *aliases* is about to be rolled back silently.

    PostgreSQL does so at COMMIT if the site has caught an error of the database, and Django if an error has
    left an ``atomic(savepoint=False)``. A rollback that code has asked for is no error.
    """
    for alias in aliases:
        connection: Any = connections[alias]
        using = "" if alias == DEFAULT_DB_ALIAS else f", using={alias!r}"
        if private.is_marked(connection):
            if connection not in _wanted_rollbacks:
                raise ConfigurationError(
                    f"What ran under the lock has caught an error that had left a block of the database "
                    f"{alias!r} without a savepoint, such as transaction.atomic(savepoint=False), so that "
                    "Django rolls back all of the transaction: nothing of it is written. Leave "
                    "savepoint=False out; or let the error out; or say that nothing is to be written: "
                    f"transaction.set_rollback(True{using})."
                )
        elif _has_failed(connection):
            raise ConfigurationError(
                f"What ran under the lock has caught an error of the database {alias!r} inside its "
                "transaction, all of which PostgreSQL rolls back then: nothing of it is written. Write "
                "'with transaction.atomic():' inside the try, around what may fail; or let the error out; or "
                f"say that nothing is to be written: transaction.set_rollback(True{using})."
            )


def mark_failed_for_rollback(raised: bool = False) -> None:
    """Make failed transactions roll back at their end, without an error: the view's response reports one.

    *raised*: the response was made from an exception, so every transaction is marked.
    """
    for connection in connections.all(initialized_only=True):
        ours = connection.in_atomic_block and private.own_blocks(connection)
        if _has_failed(connection) or (ours and (raised or private.is_marked(connection))):
            ask_for_rollback(connection)


def _has_failed(connection: Any) -> bool:
    return bool(connection.in_atomic_block and is_in_failed_transaction(connection.connection))


def roll_back(but: object = None) -> str | None:
    """Roll back the open transactions of this thread, except those of a `TestCase`.

    Return the alias of the first database with one, or None. *but*: a connection that is left as it is.
    """
    first: str | None = None
    for connection in connections.all(initialized_only=True):
        if connection is but:
            continue
        # This saves a call in the usual case, where no transaction is open.
        if (connection.in_atomic_block or not connection.autocommit) and _end(connection):
            first = first or connection.alias
    return first


def mark_for_rollback() -> str | None:
    """Make the open transactions roll back when their ``atomic`` blocks end, because code inside goes on.

    Until then Django refuses queries in these blocks. A transaction without a block is rolled back at once.
    Return the alias of the first database with one, or None.
    """
    every = connections.all(initialized_only=True)
    found = [connection.alias for connection in every if private.mark_blocks(connection) or _end(connection)]
    return found[0] if found else None


def _end(connection: Any) -> bool:
    found = private.end_blocks(connection, ConfigurationError())
    opened = connection.connection is not None and not connection.in_atomic_block
    if opened and not connection.autocommit and connection.settings_dict["AUTOCOMMIT"]:
        found = True
        connection.rollback()
        connection.set_autocommit(True)
    return found
