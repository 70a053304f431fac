"""Statements that mean something else in a transaction that several requests share."""

from __future__ import annotations

import re

from distlock.errors import ConfigurationError

#: Deferred constraints are checked now, on PostgreSQL, and then deferred again.
CHECK_DEFERRED = ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")

#: The savepoint of each part. It has one name, so that the end of one part makes it for the next.
PART = "distlock_part"
#: That end on PostgreSQL, in one message: each request sends it.
END_OF_PART = "; ".join((*CHECK_DEFERRED, f"RELEASE SAVEPOINT {PART}", f"SAVEPOINT {PART}"))

#: Statements that commit nothing, whatever follows their first word, as long as no other statement follows.
_HARMLESS = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SAVEPOINT|RELEASE|ROLLBACK|SHOW)\b[^;]*\Z", re.IGNORECASE
)

_STRING = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)|(?:--(?=[\s\x00-\x1f]|\Z)|\#)[^\n]*"

# MySQL and MariaDB execute the content of /*! … */, or the content of /*!80000 … */ if they are new enough.
_EXECUTED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!\d*|\*/|{_COMMENT}", re.DOTALL)
_SKIPPED = re.compile(rf"{_STRING}|`(\w*)`|/\*M?!(?:/\*.*?\*/|.)*?\*/|{_COMMENT}", re.DOTALL)

_STATEMENT_FOR = re.compile(r"SET STATEMENT .*? FOR ", re.IGNORECASE)

#: What MySQL and MariaDB commit before they do it: https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/
#: MariaDB's page leaves out BACKUP, INSTALL, UNINSTALL and SET DEFAULT ROLE, which commit as well.
_COMMITS = re.compile(
    r"""
    (?:ALTER|BACKUP|FLUSH|GRANT|INSTALL|OPTIMIZE|RENAME|REPAIR|RESET|REVOKE|TRUNCATE|UNINSTALL)\b
    |CREATE\ (?!(?:OR\ REPLACE\ )?TEMPORARY\ TABLE\b)
    |DROP\ (?!TEMPORARY\ TABLE\b|PREPARE\b)
    |(?:ANALYZE|CHECK)\ (?:(?:NO_WRITE_TO_BINLOG|LOCAL)\ )?(?:TABLES?|VIEW)\b
    |(?:LOCK|UNLOCK)\ TABLES?\b
    |(?:CACHE|LOAD)\ INDEX\b
    |CHANGE\ (?:MASTER|REPLICATION)\b
    |(?:START|STOP)\ (?:ALL\ )?(?:SLAVES?|REPLICAS?|GROUP_REPLICATION)\b
    |START\ TRANSACTION\b
    |BEGIN\b(?!\ NOT\b)
    |SET\ (?:PASSWORD|DEFAULT\ ROLE)\b
    |SET\ (?:.*[,@.\ ])?(?<!GLOBAL[.\ ])AUTOCOMMIT\ ?:?=\ ?(?!0|OFF\b|FALSE\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def refuse_committing(sql: str | bytes) -> None:
    """Raise `ConfigurationError` for a statement before which MySQL and MariaDB commit.

    It knows statements by their text. Others that commit, such as CALL of a procedure, end the savepoint of
    the part, which is noticed at its end.
    """
    text = sql if isinstance(sql, str) else sql.decode(errors="replace")
    if _HARMLESS.match(text):
        return
    readings = (_EXECUTED, _SKIPPED) if "/*!" in text or "/*M!" in text else (_EXECUTED,)
    for comments in readings:
        for part in comments.sub(_plain, text).split(";"):
            statement = _STATEMENT_FOR.sub("", " ".join(part.split()), count=1)
            if _COMMITS.match(statement):
                raise ConfigurationError(
                    f"A view with batch= would execute {statement.split()[0].upper()}, before which MySQL "
                    "and MariaDB commit what others have not finished. Leave batch= out, or execute it "
                    "elsewhere."
                )


def _plain(token: re.Match[str]) -> str:
    """Return what stands for a string, a quoted name or a comment where statements are recognised."""
    if token.group(1) is not None:
        return token.group(1)
    return "''" if token.group()[0] in "'\"" else " "
