"""Pruning: delete the rows of names that nobody locks any more.

A process that was suspended may go on with a grant that is older than the deleted row. So each prune leaves a
floor: new rows start from the largest fence that was ever deleted under their prefix.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import TypeVar

from distlock.backends.inspectable import Finding
from distlock.clock import now
from distlock.errors import ConfigurationError, LockTimeout
from distlock.fence.stamps import TABLE, floor_of
from distlock.fence.statements import DELETE, UPDATE, Connection, Rows, statements_for
from distlock.fence.trouble import no_table, refuse_table, trouble
from distlock.grants.grant import Fence

R = TypeVar("R")

Begin = Callable[[], AbstractContextManager[object]]

#: Rows are kept for at least this many days by default.
DAYS = 30.0

#: How many rows one transaction looks at. Callers that lock one of the names wait for that transaction.
BATCH = 100

#: Seconds that a batch may wait for other transactions, such as another prune.
PATIENCE = 30.0

# Only the table's name is interpolated. A row with an empty name is a floor.
_OLD = (
    f"SELECT id, namespace, epoch FROM {TABLE} WHERE id > %s AND passed_at < %s AND name <> '' "  # noqa: S608
    "ORDER BY id LIMIT %s"
)
_LIVING = f"SELECT MIN(epoch) FROM {TABLE} WHERE namespace = %s AND passed_at >= %s AND name <> ''"  # noqa: S608


def summary(rows: int, days: float, dry_run: bool) -> str:
    """Return a command's sentence about *rows* that it has pruned or, in a dry run, would prune."""
    which = f"{rows} {'row' if rows == 1 else 'rows'} of names that nobody has locked for {days:g} days"
    return f"{which} would be taken away." if dry_run else f"{which} taken away."


def prune(begin: Begin, connection: Connection, days: float, table_remedy: str, dry_run: bool) -> int:
    """Delete the rows that nobody has passed for *days*, a few in each transaction, and return how many.

    Locked rows stay. So do rows with a later epoch than the rows in use under their prefix: to delete one
    raises the floor above the fences in use.

    *begin*: opens a transaction of *connection*, and commits it. *table_remedy*: the remedy for a missing
    table. *dry_run*: only count the rows. Raises `ConfigurationError` if *days* is invalid or the table is
    missing; `LockTimeout` if other transactions keep the rows locked for `PATIENCE` seconds.
    """
    if not 0 <= days < math.inf:
        raise ConfigurationError(f"--older-than {days} has to be a number of days, 0 or more.")
    before = time.time_ns() // 1000 - int(days * 86_400_000_000)
    pruned = 0
    try:
        for namespace, rows in _old(begin, connection, before):
            if dry_run:
                pruned += len(rows)
                continue
            delete = partial(_prune, connection, namespace, rows, before)
            pruned += _retried(begin, delete)
    except Exception as error:
        refuse_table(error, table_remedy)
        raise
    return pruned


def _old(begin: Begin, connection: Connection, before: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows to prune in batches: a prefix, and the keys of rows under it."""

    def batch() -> tuple[Rows, dict[str, int | None]]:
        rows = connection.execute(_OLD, [last, before, BATCH])
        living: dict[str, int | None] = {}
        for namespace in {namespace for _, namespace, _ in rows}:
            [(living[namespace],)] = connection.execute(_LIVING, [namespace, before])
        return rows, living

    last = ""
    while True:
        # Under SERIALIZABLE even a plain SELECT locks rows, and may have to wait.
        rows, living = _retried(begin, lambda _: batch())
        if not rows:
            return
        last = rows[-1][0]
        found = sorted(
            (namespace, key) for key, namespace, epoch in rows if epoch <= (living[namespace] or epoch)
        )
        for namespace, group in groupby(found, key=lambda one: one[0]):
            yield namespace, [key for _, key in group]


def _retried(begin: Begin, do: Callable[[float], R]) -> R:
    """Call *do* in a transaction, with the seconds left of `PATIENCE`, and return its result.

    Try again while other transactions hinder it. Raises `LockTimeout` when no time is left.
    """
    deadline = now() + PATIENCE
    while True:
        try:
            with begin():
                return do(max(0.0, deadline - now()))
        except Exception as error:
            if trouble(error) not in {"busy", "again"}:
                raise
            if now() >= deadline:
                raise LockTimeout(
                    f"Nothing could be pruned for {PATIENCE:g} seconds: another prune, or on SQLite another "
                    "writer, keeps the rows locked. Try again later."
                ) from error


def _prune(connection: Connection, namespace: str, rows: Sequence[str], before: int, seconds: float) -> int:
    statements = statements_for(connection.kind)
    [floor_row, *_] = values = floor_of(namespace)
    # Lock the floor first. Transactions with an older snapshot wait for it, and fail because it has changed;
    # on SQLite all other writers wait.
    statements.insert(connection, values, seconds)
    [(epoch, number, _, passed_at, *_)] = statements.lock(connection, str(floor_row), seconds)
    floor, pruned = Fence(epoch, number), 0
    for row in rows:
        # A locked row is in use and stays, so don't wait for it.
        for epoch, number, _, passed, *_ in statements.lock_free(connection, row):
            if passed < before:
                floor = max(floor, Fence(epoch, number))
                connection.execute(DELETE, [row])
                pruned += 1
    when = max(passed_at + 1, time.time_ns() // 1000)
    connection.execute(UPDATE, [*floor, "", when, floor_row])
    return pruned


# -- for the doctor -----------------------------------------------------------------------------------------

#: Above this number of old rows, the health check advises a prune.
MANY = 100_000

_COUNT = f"SELECT COUNT(*), COUNT(CASE WHEN passed_at < %s THEN 1 END) FROM {TABLE}"  # noqa: S608


def examine_table(
    begin: Begin, connection: Connection, table_remedy: str, prune: str, wanted: bool
) -> Finding | None:
    """Return a finding about the fence table: its rows or an error. None: it is missing, and not *wanted*.

    *begin*: opens a transaction of *connection*. *table_remedy*: the remedy for a missing table. *prune*: the
    command that deletes old rows.
    """
    before = time.time_ns() // 1000 - int(DAYS * 86_400_000_000)
    try:
        with begin():
            [(rows, old)] = connection.execute(_COUNT, [before])
    except Exception as error:
        if trouble(error) != "no table":
            return Finding(
                "error",
                "fence table",
                f"The database can't be looked at: {type(error).__name__}.",
                "Look whether it runs, and whether its settings are right.",
            )
        missing = str(no_table("")).rstrip()
        return Finding("error", "fence table", missing, table_remedy) if wanted else None
    counted = "1 row" if rows == 1 else f"{rows} rows"
    said = f"It has {counted}, {old} of names that nobody has locked for {DAYS:g} days."
    if old > MANY:
        return Finding("warning", "fence table", said, f"Run: {prune}")
    return Finding("ok", "fence table", said)
