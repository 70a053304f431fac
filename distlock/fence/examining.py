"""A look at the fence's table, for the doctor: whether it is there, and how much of it is of any use."""

from __future__ import annotations

import time

from distlock.backends.inspectable import Finding
from distlock.fence.prune import DAYS, Begin
from distlock.fence.row import TABLE
from distlock.fence.statements import Connection
from distlock.fence.trouble import no_table, trouble

#: So many rows that nobody needs are worth a prune.
MANY = 100_000

_COUNT = f"SELECT COUNT(*), COUNT(CASE WHEN passed_at < %s THEN 1 END) FROM {TABLE}"  # noqa: S608


def examine_table(
    begin: Begin, connection: Connection, make_table: str, prune: str, wanted: bool
) -> Finding | None:
    """Count its rows.

    *begin*: opens a transaction of *connection*. *make_table*: what to do where the table is missing.
    *prune*: the command that takes old rows away. *wanted*: whether the table is needed. Where it is not, and
    is missing, None.
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
        return Finding("error", "fence table", missing, make_table) if wanted else None
    counted = "1 row" if rows == 1 else f"{rows} rows"
    said = f"It has {counted}, {old} of names that nobody has locked for {DAYS:g} days."
    if old > MANY:
        return Finding("warning", "fence table", said, f"Run: {prune}")
    return Finding("ok", "fence table", said)
