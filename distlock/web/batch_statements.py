"""Statements that mean something else in a transaction that several requests share."""

from __future__ import annotations

import re

from distlock.errors import ConfigurationError

#: What is checked at COMMIT is checked now, on PostgreSQL. Then it is put off again.
CHECK_DEFERRED = ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")

#: The savepoint of each part. It has one name, so that the end of one part makes it for the next.
PART = "distlock_part"
#: That end on PostgreSQL, in one message: each request sends it.
END_OF_PART = "; ".join((*CHECK_DEFERRED, f"RELEASE SAVEPOINT {PART}", f"SAVEPOINT {PART}"))

#: What MySQL and MariaDB commit before they do it: https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/
_COMMITS = re.compile(
    r"\s*(?:(?:CREATE|DROP)\s+(?!TEMPORARY\b)|ALTER\s|TRUNCATE\s|RENAME\s|LOCK\s+TABLE|ANALYZE\s+TABLE"
    r"|OPTIMIZE\s|REPAIR\s|GRANT\s|REVOKE\s|START\s+TRANSACTION|BEGIN\b)",
    re.IGNORECASE,
)


def refuse_committing(sql: str) -> None:
    """Raise `ConfigurationError` for a statement before which MySQL and MariaDB commit."""
    if _COMMITS.match(sql):
        raise ConfigurationError(
            f"A view with batch= would execute {sql.split(None, 1)[0].upper()}, before which MySQL and "
            "MariaDB commit what others have not finished. Leave batch= out, or execute it elsewhere."
        )
