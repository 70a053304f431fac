"""``flask distlock create-table`` and ``flask distlock prune``."""

from __future__ import annotations

from typing import Any

import click
from flask import current_app
from flask.cli import AppGroup

from distlock.errors import LockError
from distlock.fence.prune import DAYS, told
from flask_distlock.binds import DEFAULT_BIND, engine_of, shown

commands = AppGroup("distlock", help="Look after what distlock keeps in the database.")


_bind = click.option(
    "--bind", default=DEFAULT_BIND, show_default=True, help="A key of SQLALCHEMY_BINDS, as in fence=."
)


@commands.command("create-table")
@_bind
def create_table(bind: str) -> None:
    """Make the table of the fence, unless it is there."""
    engine = _engine_of(bind)
    from flask_distlock.sql import fence_row

    click.echo(f"The table {fence_row.create_table(engine)} is there.")


@commands.command("prune")
@click.option(
    "--older-than",
    metavar="DAYS",
    type=float,
    default=DAYS,
    show_default=True,
    help="Leave names that were locked in so many days.",
)
@_bind
@click.option("--dry-run", is_flag=True, help="Only count them.")
def prune(older_than: float, bind: str, dry_run: bool) -> None:
    """Take away the fence's rows of names that nobody locks any more."""
    engine = _engine_of(bind)
    from flask_distlock.sql import fence_row

    try:
        rows = fence_row.prune(engine, bind, older_than, dry_run)
    except LockError as error:
        raise click.ClickException(str(error)) from error
    click.echo(told(rows, older_than, dry_run))


def _engine_of(bind: str) -> Any:
    db: Any = current_app.extensions.get("sqlalchemy")
    if db is None:
        raise click.ClickException(
            f"The app {current_app.name!r} has no Flask-SQLAlchemy: write 'db.init_app(app)'."
        )
    engine = engine_of(db.engines, bind)
    if engine is None:
        raise click.ClickException(f"There is no bind {bind!r}: the app has {shown(db.engines)}.")
    return engine
