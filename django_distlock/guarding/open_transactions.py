"""Transactions that are open where a lock is to be taken: their COMMIT would come after its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connections

from distlock.errors import ConfigurationError
from distlock.web.caller import this_code
from django_distlock.private import own_blocks

#: The remedy if a transaction is open before the lock.
ABOVE = (
    "Write @distributed_lock above whatever opens it, transaction.atomic or a decorator of your own, on the "
    "view itself and not on a function or method that it calls; for a class-based view above the class. "
    "Decorators between it and the URL need functools.wraps."
)


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that is open where a lock is to be taken: its COMMIT would come after the release."""

    alias: str
    #: Whether autocommit is off, so that there is always one.
    manual: bool

    def message(self, where: str, names: Sequence[str], nested: bool, line: str = "") -> str:
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
                f"@distributed_lock(…, {shown}), on the outer function."
            )
        return f"{problem} {line or ABOVE}"


def find_open(alias: str | None = None) -> Open | None:
    """The first open transaction of this thread. Those that `TestCase` opens around a test don't count.

    *alias*: look at this database only.
    """
    for connection in connections.all(initialized_only=True):
        if alias not in {None, connection.alias}:
            continue
        if connection.in_atomic_block:
            if own_blocks(connection):
                return Open(connection.alias, manual=False)
        elif connection.connection is not None and not connection.autocommit:
            return Open(connection.alias, manual=True)
    # As the settings say it, too: the connection may be opened by the view.
    for other, settings in connections.settings.items():
        if settings["AUTOCOMMIT"] or alias not in {None, other} or connections[other].in_atomic_block:
            continue
        return Open(other, manual=True)
    return None


def refuse_open(names: Sequence[str], line: str) -> None:
    """Raise `ConfigurationError` if a transaction is open around a block. *line*: what to write instead."""
    if (found := find_open()) is not None:
        raise ConfigurationError(found.message(this_code(), names, nested=False, line=line))
