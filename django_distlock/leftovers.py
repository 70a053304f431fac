"""What locked code leaves of its transactions: open, closed, or failed so that their COMMIT is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from distlock.errors import ConfigurationError
from distlock.fence.trouble import is_failed


@contextmanager
def rolling_back(names: Sequence[str]) -> Iterator[None]:
    """Roll back what the block has left open, and raise `ConfigurationError` then if it raised nothing."""
    try:
        yield
    except BaseException:
        roll_back()
        raise
    refuse_left(names, roll_back())


def refuse_left(names: Sequence[str], alias: str | None) -> None:
    """Raise `ConfigurationError` if a transaction of the database *alias* was left open."""
    if alias is not None:
        shown = ", ".join(map(repr, names))
        raise ConfigurationError(
            f"What ran under the lock {shown} left a transaction of the database {alias!r} open: it is "
            "rolled back, for its COMMIT would come after the release. Write 'with transaction.atomic():'."
        )


def refuse_closed(aliases: Sequence[str]) -> None:
    """Raise `ConfigurationError` if a transaction of *aliases* has lost its connection: it is rolled back."""
    for alias in aliases:
        if connections[alias].closed_in_transaction:
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
        if _has_failed(connection) and not connection.needs_rollback:
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
            connection.needs_rollback = True


def _has_failed(connection: Any) -> bool:
    return bool(connection.in_atomic_block and is_failed(connection.connection))


def roll_back() -> str | None:
    """Roll back what is open in this thread. Gives the first database that had a transaction."""
    found: str | None = None
    for connection in connections.all(initialized_only=True):
        # Those of `TestCase` stay. Django's own test for durable blocks; the stubs don't know the attribute.
        blocks: list[Any] = connection.atomic_blocks
        while blocks and not blocks[-1]._from_testcase:
            found = found or connection.alias
            blocks[-1].__exit__(ConfigurationError, ConfigurationError(), None)
        opened = connection.connection is not None and not connection.in_atomic_block
        if opened and not connection.autocommit and connection.settings_dict["AUTOCOMMIT"]:
            found = found or connection.alias
            connection.rollback()
            connection.set_autocommit(True)
    return found
