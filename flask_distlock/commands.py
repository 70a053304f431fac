"""``flask distlock``: the ``distlock`` commands with the app's settings, ``create-table`` and ``prune``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

import click
from flask import Flask, current_app
from flask.cli import AppGroup, ScriptInfo, with_appcontext

from distlock.backends.inspectable import Finding
from distlock.cli.main import COMMANDS, HELP_OPTIONS
from distlock.cli.output import exits_for_errors
from distlock.cli.site import SettingsSite
from distlock.fence.prune import DAYS
from distlock.fence.prune import summary as prune_summary
from flask_distlock.binds import DEFAULT_BIND, bind_of, engine_of, shown
from flask_distlock.guarding.app_state import current_state
from flask_distlock.session_blocks import inspection_connection


def command_of(app: Flask) -> str:
    """Return the ``flask distlock`` command for *app*, for messages that tell an operator what to type."""
    # The flask command finds app.py, wsgi.py and $FLASK_APP by itself. For an app in a script, "__main__" is
    # no name that --app could find.
    found = app.import_name in {"app", "wsgi", "__main__"} or "FLASK_APP" in os.environ
    return _typed(None if found else app.import_name)


def _typed(app_path: str | None) -> str:
    return f"flask --app {shlex.quote(app_path)} distlock" if app_path else "flask distlock"


class _FlaskSite(SettingsSite):
    def __init__(self, app_path: str | None) -> None:
        # Hints have to repeat the --app that the user typed.
        command = _typed(app_path)
        super().__init__(
            current_state().clients, command, lambda fence: inspection_connection(bind_of(fence))
        )

    def examine(self, alias: str | None, threads: int | None) -> Iterator[Finding]:
        yield from super().examine(alias, threads)
        bind = bind_of(self.settings(alias).fence)
        if bind is None and "sqlalchemy" not in current_app.extensions:
            return
        engine = _engine_of(bind or DEFAULT_BIND)
        from flask_distlock.sql import fenced_sessions

        finding = fenced_sessions.examine(engine, bind or DEFAULT_BIND, wanted=bind is not None)
        if finding is not None:
            yield finding


@click.group("distlock", cls=AppGroup, context_settings=HELP_OPTIONS)
@with_appcontext
@click.pass_context
def commands(context: click.Context) -> None:
    """Inspect this app's locks, request the release of one or break it, and prune the fence table."""
    with exits_for_errors():
        context.obj = _FlaskSite(context.ensure_object(ScriptInfo).app_import_path)


for _command in COMMANDS:
    commands.add_command(_command)


_bind = click.option(
    "--bind", default=DEFAULT_BIND, show_default=True, help="A key of SQLALCHEMY_BINDS, as in fence=."
)


@commands.command("create-table")
@_bind
def create_table(bind: str) -> None:
    """Create the fence table, unless it exists."""
    engine = _engine_of(bind)
    from flask_distlock.sql import fenced_sessions

    click.echo(f"The table {fenced_sessions.create_table(engine)} is there.")


@commands.command("prune")
@click.option(
    "--older-than",
    metavar="DAYS",
    type=float,
    default=DAYS,
    show_default=True,
    help="Keep names that were locked in the last DAYS days.",
)
@_bind
@click.option("--dry-run", is_flag=True, help="Only count them.")
def prune(older_than: float, bind: str, dry_run: bool) -> None:
    """Delete the fence rows of names that nobody locks any more."""
    engine = _engine_of(bind)
    from flask_distlock.sql import fenced_sessions

    with exits_for_errors():
        rows = fenced_sessions.prune(engine, bind, older_than, dry_run)
    click.echo(prune_summary(rows, older_than, dry_run))


def _engine_of(bind: str) -> Any:
    db: Any = current_app.extensions.get("sqlalchemy")
    if db is None:
        raise click.ClickException(
            f"The app {current_app.name!r} has no Flask-SQLAlchemy: write 'db.init_app(app)'."
        )
    engine = engine_of(bind)
    if engine is None:
        raise click.ClickException(f"There is no bind {bind!r}: the app has {shown(db.engines)}.")
    return engine
