"""What the errors of a database mean for the fence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from distlock.errors import ConfigurationError, LockError
from distlock.fence.stamps import TABLE

#: "busy": a wait took too long. "again": a conflict, so the transaction has to be begun again. "no table",
#: "old table": the fence table is missing, or has old columns. "replica": the database takes no writes.
#: "away": the database does not answer.
Trouble = Literal["busy", "again", "no table", "old table", "replica", "away"]

#: SQLSTATEs of PostgreSQL, and numbers of MySQL and MariaDB.
_TROUBLES: dict[object, Trouble] = {
    "55P03": "busy",
    "57014": "busy",
    1205: "busy",
    1969: "busy",
    3024: "busy",
    "40001": "again",
    "40P01": "again",
    1020: "again",
    1213: "again",
    "42P01": "no table",
    1146: "no table",
    "42703": "old table",
    1054: "old table",
    "25006": "replica",
}

#: The setting of the database that has ended a statement with such a code.
_LIMITS: dict[object, str] = {
    "57014": "statement_timeout",
    1969: "max_statement_time",
    3024: "max_execution_time",
}


def is_in_failed_transaction(driver: object) -> bool:
    """Return whether the next COMMIT on *driver*, a psycopg connection, would silently roll back.

    PostgreSQL does so after an error, even a caught one. Other drivers don't tell: return False.
    """
    # Both versions of psycopg have this attribute. The value is PQTRANS_INERROR of libpq.
    return bool(getattr(getattr(driver, "info", None), "transaction_status", None) == 3)


def is_broken(driver: Any) -> bool:
    """Return whether *driver*, a driver's connection, is None or knows that it is closed or broken."""
    return driver is None or bool(getattr(driver, "closed", False)) or not getattr(driver, "open", True)


def ends_transaction(error: BaseException) -> bool:
    """Return whether MySQL or MariaDB has rolled back because of *error*. The next statement begins anew.

    Return False for other databases: after an error PostgreSQL takes no more statements, and SQLite has no
    such errors.
    """
    return any(one.args[:1] in [(1020,), (1213,)] for one in _causes(error))


def is_after_failure(error: BaseException) -> bool:
    """Return whether *error* says that PostgreSQL refused a statement because an earlier one had failed."""
    return any(
        "25P02" in (getattr(one, "sqlstate", None), getattr(one, "pgcode", None)) for one in _causes(error)
    )


def is_unmarked(error: BaseException) -> bool:
    """Return whether *error*, of `Mark.check`, says that the transaction has no such mark."""
    # PostgreSQL reports a division by zero; MariaDB, MySQL and, without a code, SQLite a missing savepoint.
    return any(
        code in {"22012", 1305} or "no such savepoint" in str(one)
        for one in _causes(error)
        for code in (*_codes(one), "")
    )


def trouble(error: BaseException) -> Trouble | None:
    """Return the meaning of a database's *error* for the fence; None: it has none.

    Look at its causes, too, because frameworks wrap the driver's error.
    """
    for one in _causes(error):
        for code in _codes(one):
            if code in _TROUBLES:
                return _TROUBLES[code]
        # SQLite's errors have no codes.
        text = str(one)
        if "database is locked" in text or "table is locked" in text:
            return "busy"
        if f"no such table: {TABLE}" in text:
            return "no table"
        if f"table {TABLE} has no column" in text or "no such column" in text:
            return "old table"
    # PEP 249 has these classes for errors that the statement has not caused, such as a lost connection.
    names = {type(one).__name__ for one in _causes(error)}
    return "away" if names & {"OperationalError", "InterfaceError"} else None


def says_not_committed(error: BaseException) -> bool:
    """Return whether *error*, which a COMMIT raised, is certain proof that nothing is committed."""
    if any(isinstance(one, LockError) or type(one).__name__ == "IntegrityError" for one in _causes(error)):
        return True
    return trouble(error) in {"busy", "again"} or any(
        _is_refusal(code) for one in _causes(error) for code in _codes(one)
    )


def _is_refusal(code: str | int) -> bool:
    """Return whether *code* is from a server that has refused the statement, and runs on."""
    if isinstance(code, int):
        # Numbers from 2000 on are errors of the driver. The three mean that somebody has stopped the server,
        # the statement or the connection.
        return 1000 <= code < 2000 and code not in {1053, 1317, 1927}
    # The classes mean: no connection (08), ended by an operator (57), failing disk (58), server fault (XX).
    return len(code) == 5 and code.isalnum() and code[:2] not in {"08", "57", "58", "XX"}


#: The former and the current names of the table's columns.
_RENAMED = {"domain": "namespace", "era": "epoch", "seal": "holder_id"}


def refuse_table(error: BaseException, table_remedy: str, *, row_is_lock: bool = False) -> None:
    """Raise `ConfigurationError` if a database's *error* says that the table is missing, or has old columns.

    *table_remedy* is the remedy for a missing table. *row_is_lock*: the rows are the locks.
    """
    # The error of the driver would add nothing, so it is not chained.
    match trouble(error):
        case "no table":
            raise no_table(table_remedy, row_is_lock=row_is_lock) from None
        case "old table":
            alter = "; ".join(
                f"ALTER TABLE {TABLE} RENAME COLUMN {old} TO {new}" for old, new in _RENAMED.items()
            )
            raise ConfigurationError(
                f"The table {TABLE} has the columns of an earlier version. Run: {alter};"
            ) from None


def no_table(table_remedy: str, *, row_is_lock: bool = False) -> ConfigurationError:
    """Return the error for a missing table. *table_remedy*: the remedy; *row_is_lock*: rows are the locks."""
    rows = "whose rows are the locks" if row_is_lock else "which keeps the fences of the locks"
    return ConfigurationError(f"The table {TABLE}, {rows}, is missing in the database. {table_remedy}")


def limit(error: BaseException) -> str | None:
    """Return the database's setting that has ended the statement, according to *error*; None: none did."""
    return next((_LIMITS[code] for one in _causes(error) for code in _codes(one) if code in _LIMITS), None)


def words_of(error: BaseException) -> str:
    """Return the first line of the driver's error, without the statement that frameworks add to it."""
    *_, driver = _causes(error)
    return next(iter(str(driver).splitlines()), "") or type(driver).__name__


def _codes(error: BaseException) -> Iterator[str | int]:
    for code in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None), *error.args[:1]):
        if isinstance(code, str | int):
            yield code


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        original = getattr(error, "orig", None)
        error = original if isinstance(original, BaseException) else error.__cause__
