"""Statements that commit by themselves on MariaDB: one in a batch harms no request but its own.

What commits out of sight of the statement's text is answered as an outcome that is not known.
"""

from __future__ import annotations

import secrets

import pytest
from django.db import connections
from sqlalchemy import Engine

from distlock.errors import ConfigurationError
from distlock.web.batch import refuse_committing
from tests.batches.django_line import Answer, DjangoLine, Line
from tests.databases import on
from tests.fence.conftest import STOCK

SOLD = Answer(200)
FAILED = Answer(500)
UNKNOWN = Answer(500, "lock_outcome_unknown")

#: MariaDB executes each of them, and commits before it does.
COMMITTING = (
    "/*c*/ TRUNCATE seen",
    "/* a\n*/ -- b\n# c\nTRUNCATE seen",
    "/*!50000 TRUNCATE*/ seen",
    "/*! /* c */ FLUSH STATUS */",
    "/*M!100000 FLUSH STATUS */",
    "/*!999999 x */ FLUSH STATUS",
    "FLUSH STATUS",
    "FLUSH/**/LOCAL STATUS",
    "TRUNCATE TABLE seen",
    "CREATE TABLE IF NOT EXISTS seen (n int)",
    "CREATE OR REPLACE VIEW seen_view AS SELECT 1",
    "CREATE TEMPORARY SEQUENCE numbers",
    "DROP TABLE IF EXISTS nothing",
    "ALTER TABLE seen COMMENT 'x'",
    "RENAME TABLE seen TO saw, saw TO seen",
    "ANALYZE TABLE seen",
    "ANALYZE LOCAL TABLE seen",
    "CHECK TABLE seen",
    "OPTIMIZE TABLE seen",
    "REPAIR TABLE seen",
    "LOCK TABLES seen READ",
    "RESET QUERY CACHE",
    "BACKUP UNLOCK",
    "SET PASSWORD = PASSWORD('')",
    "SET DEFAULT ROLE NONE",
    "SET @x = 'autocommit', `autocommit` = 1",
    "SET @@session.autocommit = ON",
    "SET SESSION autocommit=1",
    "SET STATEMENT max_statement_time=9 FOR FLUSH STATUS",
    "GRANT SELECT ON seen TO CURRENT_USER()",
    "DROP USER IF EXISTS nobody",
    "BEGIN",
    "START TRANSACTION",
)

#: These leave the transaction as it is.
HARMLESS = (
    "SELECT 'a; TRUNCATE seen'",
    "/* TRUNCATE seen */ SELECT 1",
    "-- FLUSH STATUS\nSELECT 1",
    "SET @sql = 'x; FLUSH STATUS'",
    'SET @sql = "its; FLUSH STATUS"',
    "CREATE TEMPORARY TABLE own (n int)",
    "CREATE /*c*/ OR REPLACE TEMPORARY TABLE own (n int)",
    "DROP TEMPORARY TABLE IF EXISTS own",
    "ANALYZE SELECT 1",
    "CHECKSUM TABLE seen",
    "SET NAMES utf8mb4",
    "SET autocommit=0",
    "SET @autocommits = 1",
    "BEGIN NOT ATOMIC SET @x = 1; END",
    "PREPARE one FROM 'SELECT 1'",
)


def commits(engine: Engine, statement: str) -> bool:
    """Whether MariaDB ends the transaction in which it executes *statement*."""
    with engine.connect() as connection:
        try:
            connection.exec_driver_sql("SAVEPOINT here")
            connection.exec_driver_sql(statement.replace("%", "%%"))
            connection.exec_driver_sql("RELEASE SAVEPOINT here")
        except Exception as error:
            if "SAVEPOINT here does not exist" not in str(error):
                raise
            return True
        finally:
            connection.invalidate()
        return False


@pytest.fixture
def seen(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS seen (n int)")


@on("mariadb")
def test_what_commits_is_refused_and_nothing_else(engine: Engine, seen: None) -> None:
    for statement in COMMITTING:
        assert commits(engine, statement), statement
        lower = statement.lower().replace("/*m!", "/*M!")
        for one in (statement, lower, statement.encode(), f"SELECT 1; {statement}"):
            with pytest.raises(ConfigurationError, match="Leave batch= out"):
                refuse_committing(one)
    for statement in HARMLESS:
        assert not commits(engine, statement), statement
        refuse_committing(statement)


@pytest.mark.parametrize("statement", COMMITTING[:10])
@on("mariadb")
def test_a_statement_that_commits_fails_its_own_request(any_line: Line, statement: str) -> None:
    line = any_line
    line.execute("CREATE TABLE IF NOT EXISTS seen (n int)")
    line.serve({"b": lambda: line.shop.execute(statement)})  # type: ignore[attr-defined]
    assert line.answers("a", "b", "c") == {"a": SOLD, "b": FAILED, "c": SOLD}
    assert line.left() == STOCK - 2


@on("mariadb")
def test_where_a_procedure_commits_the_outcome_is_unknown(any_line: Line) -> None:
    line = any_line
    name = f"ends_{secrets.token_hex(4)}"
    line.execute(f"CREATE PROCEDURE {name}() COMMIT")
    line.serve({"b": lambda: line.shop.execute(f"CALL {name}()")})  # type: ignore[attr-defined]
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}


@on("postgresql", "mariadb")
def test_where_the_driver_commits_the_outcome_is_unknown(any_line: Line) -> None:
    line = any_line

    def commit() -> None:
        if isinstance(line, DjangoLine):
            connections[line.using].connection.commit()
        else:
            line.shop.db.session.connection().connection.commit()  # type: ignore[attr-defined]

    line.serve({"b": commit})
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}


@on("postgresql", "mariadb")
def test_a_view_that_commits_and_then_raises_has_an_unknown_outcome(any_line: Line) -> None:
    line = any_line

    def commit_and_fail() -> None:
        line.shop.execute("COMMIT")  # type: ignore[attr-defined]
        raise ZeroDivisionError

    line.serve({"b": commit_and_fail})
    assert line.answers("a", "b", "c") == {"a": UNKNOWN, "b": UNKNOWN, "c": SOLD}
