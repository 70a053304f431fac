"""``flask distlock create-table``."""

from __future__ import annotations

from typing import Any

import click
from flask import current_app
from flask.cli import AppGroup

from flask_distlock.sessions import DEFAULT_BIND

commands = AppGroup("distlock", help="Look after what distlock keeps in the database.")


@commands.command("create-table")
@click.option(
    "--bind", default=DEFAULT_BIND, show_default=True, help="A key of SQLALCHEMY_BINDS, as in fence=."
)
def create_table(bind: str) -> None:
    """Make the table of the fence, unless it is there."""
    db: Any = current_app.extensions.get("sqlalchemy")
    if db is None:
        raise click.ClickException(
            f"The app {current_app.name!r} has no Flask-SQLAlchemy: write 'db.init_app(app)'."
        )
    engine = db.engines.get(None if bind == DEFAULT_BIND else bind)
    if engine is None:
        known = ", ".join(repr(key or DEFAULT_BIND) for key in db.engines) or "none"
        raise click.ClickException(f"There is no bind {bind!r}: the app has {known}.")
    from sqlalchemy import MetaData

    from flask_distlock.fence import fence_table

    table = fence_table(MetaData())
    table.create(engine, checkfirst=True)
    click.echo(f"The table {table.name} is there.")
