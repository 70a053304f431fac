"""Marks, which prove before COMMIT that the open transaction is the one that has passed the fence.

Code under the lock can end the fenced transaction early: by `commit()` or `rollback()` of the driver, by SQL,
or on MariaDB and MySQL by any statement that commits implicitly. That unlocks the fence row, and later
statements run in another transaction, which has passed no fence. So the fenced transaction gets a mark that
ends with it. Before COMMIT, or in the same message, a statement is sent that fails without the mark.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distlock.errors import OutcomeUnknown
from distlock.fence.trouble import is_unmarked

#: PostgreSQL's expression for the id of the open transaction, as the text that `of_transaction` takes.
TRANSACTION_ID = "pg_catalog.pg_current_xact_id()::text"

#: The client flag of MySQL's protocol that allows several statements in one message.
_MULTI_STATEMENTS = 1 << 16


class EndedEarly(OutcomeUnknown):
    """The transaction that passed the fence had ended before its COMMIT: what it wrote may stand."""

    def __init__(self, names: Sequence[str], dropped: Sequence[str] = ()) -> None:
        """Name the locks *names*, and the on_commit hooks *dropped*, which do not run."""
        shown = ", ".join(map(repr, names))
        hooks = f" These on_commit hooks do not run: {', '.join(dropped)}." if dropped else ""
        super().__init__(
            f"The fenced transaction under the lock {shown} ended before its COMMIT, so that others may have "
            f"come between. What was written before that may stand; the rest is rolled back.{hooks} Leave "
            "out commit() and rollback() of the driver's connection, COMMIT, ROLLBACK and BEGIN, and on "
            "MariaDB and MySQL statements that commit by themselves, such as TRUNCATE, CREATE TABLE or "
            "ANALYZE TABLE; or execute them outside of the lock."
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one transaction, which passed the fence under the locks *names*."""

    names: Sequence[str]
    #: A statement that fails in every other transaction.
    check: str
    #: Whether `check` leaves the mark in the transaction, instead of removing it.
    stays: bool = False

    def look(
        self, send: Callable[[str], object], then: str = "", dropped: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """Send `check`, and *then* in the same message. Raises `EndedEarly` if the mark is gone.

        *dropped*: returns the names of the on_commit hooks that do not run in that case.
        """
        try:
            send(f"{self.check}; {then}" if then else self.check)
        except Exception as error:
            if is_unmarked(error):
                raise EndedEarly(self.names, dropped()) from error
            raise


def of_transaction(names: Sequence[str], number: str) -> Mark:
    """Return PostgreSQL's mark, which is the id of the transaction. *number*: the value of `TRANSACTION_ID`.

    A savepoint as the mark would need an id of its own, with which PostgreSQL refuses pg_export_snapshot().
    """
    same = f"pg_catalog.pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM '{int(number)}'::xid8"
    # In another transaction, this divides by zero. After any error PostgreSQL skips the rest of the message.
    return Mark(names, f"SELECT 1 / ({same})::int", stays=True)


def of_savepoint(names: Sequence[str]) -> tuple[Mark, str]:
    """Return a mark for the other databases, and the statement that sets it."""
    # The name is random: a savepoint with the same name, made after an early COMMIT, would hide the COMMIT.
    name = f"distlock_{secrets.token_hex(8)}"
    return Mark(names, f"RELEASE SAVEPOINT {name}"), f"SAVEPOINT {name}"


def takes_several(driver: Any) -> bool:
    """Return whether *driver*, a connection to MariaDB or MySQL, may send several statements at once."""
    return bool(getattr(driver, "client_flag", 0) & _MULTI_STATEMENTS)


def commits_in_message(driver: Any) -> bool:
    """Return whether commit() of *driver* sends nothing after a message that ended with COMMIT.

    psycopg 3 does so: it asks libpq whether a transaction is open.
    """
    pgconn = getattr(driver, "pgconn", None)
    # In a pipeline of psycopg, a message has only one statement.
    return pgconn is not None and hasattr(driver, "pipeline") and not pgconn.pipeline_status
