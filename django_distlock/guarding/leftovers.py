"""What locked code leaves of its transactions: open, closed, or failed so that their COMMIT is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from distlock.errors import ConfigurationError
from distlock.fence.trouble import is_failed
from django_distlock import private


def left_open(names: Sequence[str], alias: str) -> ConfigurationError:
    """The error for a transaction of the database *alias* that code under the lock of *names* left open."""
    shown = ", ".join(map(repr, names))
    return ConfigurationError(
        f"What ran under the lock {shown} left a transaction of the database {alias!r} open: it is "
        "rolled back, for its COMMIT would come after the release. Write 'with transaction.atomic():'."
    )


def refuse_left(names: Sequence[str], alias: str | None) -> None:
    """Raise `left_open` if a transaction of the database *alias* was left open."""
    if alias is not None:
        raise left_open(names, alias)


def refuse_early(names: Sequence[str], alias: str | None) -> None:
    """Raise `ConfigurationError` if the lock was released inside a transaction of the database *alias*."""
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
    """Raise `ConfigurationError` if a transaction of *aliases* has lost its connection: it is rolled back."""
    for alias in aliases:
        if private.was_closed_inside(connections[alias]):
            raise ConfigurationError(
                f"The view closed its connection to the database {alias!r} inside its transaction, so that "
                "nothing of it is committed: leave connection.close() and connections.close_all() out."
            )


def refuse_failed(aliases: Sequence[str]) -> None:
    """Raise `ConfigurationError` if the database would roll back a transaction of *aliases* at its COMMIT.

    PostgreSQL does so in silence after an error that somebody has caught.
    """
    for alias in aliases:
        connection: Any = connections[alias]
        if _has_failed(connection) and not private.is_marked(connection):
            using = "" if alias == DEFAULT_DB_ALIAS else f", using={alias!r}"
            raise ConfigurationError(
                f"What ran under the lock has caught an error of the database {alias!r} inside its "
                "transaction, all of which PostgreSQL rolls back then: nothing of it is written. Write "
                "'with transaction.atomic():' inside the try, around what may fail; or let the error out; or "
                f"say that nothing is to be written: transaction.set_rollback(True{using})."
            )


def give_up_failed() -> None:
    """For an answer that tells of an error: what the database has rolled back was meant to be."""
    for connection in connections.all(initialized_only=True):
        if _has_failed(connection):
            private.mark(connection)


def _has_failed(connection: Any) -> bool:
    return bool(connection.in_atomic_block and is_failed(connection.connection))


def roll_back(but: object = None) -> str | None:
    """Roll back what is open in this thread. Gives the first database that had a transaction.

    *but*: a connection that is left as it is.
    """
    first: str | None = None
    for connection in connections.all(initialized_only=True):
        if connection is but:
            continue
        # Most often there is nothing to end.
        if (connection.in_atomic_block or not connection.autocommit) and _end(connection):
            first = first or connection.alias
    return first


def give_up() -> str | None:
    """`roll_back`, for code that is inside of its ``atomic`` blocks, and goes on there.

    They are rolled back at their end, and nothing more is written in them.
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
