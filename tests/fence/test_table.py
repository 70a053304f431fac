"""One table from all its makers: Django's migration, SQLAlchemy, the command, Alembic."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from django.apps import apps
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Engine, MetaData, Table, inspect, text

from distlock.errors import ConfigurationError
from django_distlock import atomic
from flask_distlock import DistLock
from tests.fence.dummies import dummy_locks

DOCS = Path(__file__).parents[2] / "docs"

Make = Callable[[Engine, str], None]


def with_django(engine: Engine, using: str) -> None:
    from django.core.management import call_command

    call_command("migrate", "distlock", database=using, verbosity=0)


def with_alembic(engine: Engine, using: str) -> None:
    [snippet] = re.findall(
        r"```python\n(from alembic.*?)```", (DOCS / "how-to/fence.md").read_text("utf-8"), re.DOTALL
    )
    migration: dict[str, Callable[[], None]] = {}
    exec(compile(snippet, "docs/how-to/fence.md", "exec"), migration)
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration["upgrade"]()


def with_the_command(engine: Engine, using: str) -> None:
    said = run(engine, "create-table")
    assert said == "The table distlock_fence is there.\n"
    assert run(engine, "create-table") == said


def run(engine: Engine, *arguments: str) -> str:
    app = Flask(__name__)
    url = engine.url.render_as_string(hide_password=False)
    app.config.from_mapping(SQLALCHEMY_DATABASE_URI=url, DISTLOCK="memory://command")
    db = SQLAlchemy(app)
    DistLock(app)
    output = app.test_cli_runner().invoke(args=["distlock", *arguments]).output
    with app.app_context():
        db.engine.dispose()
    return output


def columns(engine: Engine) -> list[tuple[str, str, bool]]:
    found = inspect(engine).get_columns("distlock_fence")
    return [(one["name"], one["type"].compile(engine.dialect), one["nullable"]) for one in found]


@pytest.mark.parametrize("make", [with_django, with_the_command, with_alembic])
def test_the_table_is_the_same(make: Make, engine: Engine, using: str) -> None:
    expected = columns(engine)
    assert [name for name, _, _ in expected] == [
        "id",
        "namespace",
        "name",
        "epoch",
        "number",
        "holder_id",
        "passed_at",
    ]
    with engine.begin() as connection:
        Table("distlock_fence", MetaData()).drop(connection)
        connection.execute(text("DROP TABLE IF EXISTS django_migrations"))
    make(engine, using)
    assert columns(engine) == expected
    assert inspect(engine).get_pk_constraint("distlock_fence")["constrained_columns"] == ["id"]


def test_an_unknown_bind_is_named(engine: Engine) -> None:
    assert "There is no bind 'archive': the app has 'default'." in run(
        engine, "create-table", "--bind", "archive"
    )


def test_an_app_without_sqlalchemy_is_told_so() -> None:
    app = Flask(__name__)
    app.config["DISTLOCK"] = "memory://command"
    DistLock(app)
    output = app.test_cli_runner().invoke(args=["distlock", "create-table"]).output
    assert "has no Flask-SQLAlchemy: write 'db.init_app(app)'" in output


@pytest.mark.parametrize("installed", [True, False])
def test_where_it_is_missing_django_says_what_to_run(
    installed: bool, engine: Engine, using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        Table("distlock_fence", MetaData()).drop(connection)
    if not installed:
        monkeypatch.setattr(apps, "is_installed", lambda name: name != "django_distlock")
    with dummy_locks().lock("product_1") as grant, pytest.raises(ConfigurationError) as missing:
        atomic(grant, using).__enter__()
    assert "Run: python manage.py migrate distlock --database fenced" in str(missing.value)
    assert ('INSTALLED_APPS += ["django_distlock"]' in str(missing.value)) is not installed


def test_a_table_of_an_earlier_version_is_told_with_the_statements_to_run(engine: Engine, using: str) -> None:
    with engine.begin() as connection:
        for old, new in (("domain", "namespace"), ("era", "epoch"), ("seal", "holder_id")):
            connection.execute(text(f"ALTER TABLE distlock_fence RENAME COLUMN {new} TO {old}"))
    with dummy_locks().lock("product_1") as grant:
        with pytest.raises(ConfigurationError, match="has the columns of an earlier version") as old_table:
            atomic(grant, using).__enter__()
        statements = str(old_table.value).partition("Run: ")[2].split(";")[:-1]
        assert len(statements) == 3
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        with atomic(grant, using):
            pass
